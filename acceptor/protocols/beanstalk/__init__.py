"""beanstalkd's protocol: its rare commands; the codec is csrc/acceptor/protocols/beanstalk/."""
