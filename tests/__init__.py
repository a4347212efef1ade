"""The tests. Run with `pytest`; what each file needs (a built core, a real beanstalkd, root) it skips without."""
