package inbox

import "github.com/postrider/postrider"

// A consumer whose stream or topic is mistyped has no lag and no errors: it looks as if nothing were published. The log of the process
// says so once. What an operator sees later is in store.ConsumerStatus.

// noteEmpty logs that the log has no messages.
func (s *logSource[Tx]) noteEmpty(parts []postrider.LogPartition) {
	names := make([]string, 0, len(parts))
	for _, p := range parts {
		if p.End >= p.First {
			return
		}
		names = append(names, p.Name)
	}
	s.c.cfg.Logger.Info("the source has no messages yet; if it should have some, see whether its stream and topics are spelled as those of the publisher",
		"consumer", s.c.cfg.Name, "partitions", names)
}

// noteUnmatched logs that everything that a partition has was read, from its beginning, and no message was one for this consumer. The parts
// of a divided stream have only messages of some keys, so one without any says nothing.
func (r *logRun[Tx]) noteUnmatched(now postrider.LogPartition) {
	s := r.src
	if !r.whole || now.Shared || r.position.Offset < now.End || now.End < now.First {
		return
	}
	r.whole = false
	if s.received.Load() || s.unmatched.Swap(true) {
		return
	}
	s.c.cfg.Logger.Warn("the source has messages, and none is of a topic that the consumer reads; are they spelled as those of the messages?",
		"consumer", s.c.cfg.Name, "partition", r.part.Name, "up_to_offset", now.End)
}
