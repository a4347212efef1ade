/* All that Python can call of the C core. One section a module, in the order in which a message travels. */

/* == ring == */

/* == channel == */

/* == acceptor == */

/* == worker == */

/* == log == */
