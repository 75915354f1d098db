package postrider

// The headers of a message that an operator replayed. They are not counted against MaxHeaders and MaxHeaderBytes.
const (
	// HeaderReplay is the ID of the replay: a UUID, the same for all of its messages.
	HeaderReplay = "postrider-replay"
	// HeaderReplayFor is the name of the only consumer that is to handle the message again, if the operator named one.
	HeaderReplayFor = "postrider-replay-for"
)

// Replay returns the ID of the replay that sent the message again, "" if none did, and the name of the only consumer that is to handle
// it again, "" if none is named. See package inbox for what a consumer does with it.
func (m *Message) Replay() (id, consumer string) {
	return m.Headers[HeaderReplay], m.Headers[HeaderReplayFor]
}

// PublishID identifies the message to a broker that drops messages which it already has: the ID, and for a replayed message also that
// of the replay.
func (m *Message) PublishID() string {
	if id, _ := m.Replay(); id != "" {
		return m.ID + "/" + id
	}
	return m.ID
}
