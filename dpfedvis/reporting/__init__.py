"""What people look at: statements, figures and pages."""
