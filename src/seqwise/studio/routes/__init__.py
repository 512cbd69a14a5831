"""The routes of the studio, by subject. Each module has `build_router(services)`."""
