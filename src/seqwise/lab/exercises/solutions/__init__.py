"""The exercises, solved. In the file that a student gets, the right-hand side of lines with `# blank` is missing."""
