"""What is true of a scene's folder: its reconstruction, and the headers of its photos. No photo is decoded."""
