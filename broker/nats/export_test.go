package natsbroker

// LookAgain makes the publisher read the stream's configuration before the next call.
func LookAgain(p *Publisher) { p.batches.until.Store(0) }
