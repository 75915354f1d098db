package natsbroker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/logmark"
)

// markOf returns the Mark of a message: its storage time in nanoseconds, and its ID.
func markOf(stored time.Time, header nats.Header, data []byte) string {
	return logmark.Of(strconv.FormatInt(stored.UnixNano(), 10), header.Get(nats.MsgIdHdr), data)
}

// storedMsg is the answer to $JS.API.STREAM.MSG.GET.
type storedMsg struct {
	Error   *jetstream.APIError `json:"error"`
	Message struct {
		Seq     uint64    `json:"seq"`
		Headers []byte    `json:"hdrs"`
		Data    []byte    `json:"data"`
		Time    time.Time `json:"time"`
	} `json:"message"`
}

// VerifyPosition implements postrider.Subscriber. It asks the stream's leader, because replicas (direct get) may be out
// of date.
func (s *Subscriber) VerifyPosition(ctx context.Context, at postrider.Position) (postrider.PositionState, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.PublishTimeout)
	defer cancel()
	state, err := s.lookAt(ctx, at)
	if err != nil {
		return 0, postrider.Unavailable(fmt.Errorf("nats: look at message %d of stream %s (the user must be allowed to publish to "+
			"$JS.API.STREAM.MSG.GET.%s): %w", at.Offset, s.cfg.Stream, s.cfg.Stream, err))
	}
	return state, nil
}

// get returns a message of the stream from its leader. Errors: *jetstream.APIError.
func (s *Subscriber) get(ctx context.Context, request []byte) (stored storedMsg, err error) {
	answer, err := s.conn.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+s.cfg.Stream, request)
	if err != nil {
		return stored, err
	}
	if err := json.Unmarshal(answer.Data, &stored); err != nil {
		return stored, fmt.Errorf("read the answer: %w", err)
	}
	if stored.Error != nil {
		return stored, stored.Error
	}
	return stored, nil
}

// lastOf returns the sequence of the last message with a subject, which may have wildcards; 0 for none.
func (s *Subscriber) lastOf(ctx context.Context, subject string) (uint64, error) {
	stored, err := s.get(ctx, fmt.Appendf(nil, `{"last_by_subj":%q}`, subject))
	if refused, ok := errors.AsType[*jetstream.APIError](err); ok && refused.ErrorCode == jetstream.JSErrCodeMessageNotFound {
		return 0, nil
	}
	return stored.Message.Seq, err
}

// markAt returns the Mark of the message at a sequence. Errors: *jetstream.APIError.
func (s *Subscriber) markAt(ctx context.Context, sequence int64) (string, error) {
	stored, err := s.get(ctx, fmt.Appendf(nil, `{"seq":%d}`, sequence))
	if err != nil {
		return "", err
	}
	header, err := nats.DecodeHeadersMsg(stored.Message.Headers)
	if len(stored.Message.Headers) > 0 && err != nil {
		return "", fmt.Errorf("read the headers: %w", err)
	}
	return markOf(stored.Message.Time, header, stored.Message.Data), nil
}

func (s *Subscriber) lookAt(ctx context.Context, at postrider.Position) (postrider.PositionState, error) {
	mark, err := s.markAt(ctx, at.Offset)
	refused, _ := errors.AsType[*jetstream.APIError](err)
	switch {
	case err == nil && mark == at.Mark:
		return postrider.PositionKept, nil
	case err == nil, refused != nil && refused.ErrorCode == jetstream.JSErrCodeStreamNotFound:
		return postrider.PositionReplaced, nil
	case refused == nil || refused.ErrorCode != jetstream.JSErrCodeMessageNotFound:
		return 0, err
	}
	stream, err := s.js.Stream(ctx, s.cfg.Stream)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return postrider.PositionReplaced, nil
	case err != nil:
		return 0, err
	}
	info := stream.CachedInfo()
	if incarnationOf(info) != at.Incarnation || info.State.LastSeq < uint64(at.Offset) {
		return postrider.PositionReplaced, nil
	}
	return postrider.PositionRemoved, nil
}

// incarnationOf returns the creation time of the stream. A stream restored from a backup has the same one.
func incarnationOf(info *jetstream.StreamInfo) string {
	return info.Created.UTC().Format(time.RFC3339Nano)
}
