package natsbroker

// LookAgain has the publisher look at its stream before the next call.
func LookAgain(p *Publisher) { p.batches.until.Store(0) }
