"""`make pipeline-demo`: the pipeline from two protocols to tables and plots, on a broker of its own."""
