//! Rows of the tables of the model.
