"""Scenes on disk: readers of the field's layouts, lens undistortion and the image cache."""
