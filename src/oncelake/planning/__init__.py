"""Pure: declarations and logs in, a plan out."""
