"""Pictures with captions: files, folders, arrays, drawn shapes."""
