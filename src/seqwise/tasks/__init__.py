"""Tasks: the entrance. One page per task, where tokens, backbone, head, loss, decoding and metrics meet."""
