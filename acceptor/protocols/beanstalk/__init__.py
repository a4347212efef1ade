"""beanstalkd's protocol: what is rare; the codec is csrc/acceptor/protocols/beanstalk/."""
