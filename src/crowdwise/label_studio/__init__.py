"""A Label Studio server: annotations in, consensus back as predictions, and what to label next."""
