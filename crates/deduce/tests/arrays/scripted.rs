//! Arrays of one's own making.
