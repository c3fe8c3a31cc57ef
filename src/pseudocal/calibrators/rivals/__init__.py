"""What PseudoCal is compared with: one file for each method."""
