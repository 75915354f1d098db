package kafkabroker_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/internal/faultproxy"
)

// proxy is a proxy for a single-node Kafka that understands the protocol and causes faults on demand. The client must
// dial it whatever address the broker advertises (kgo.Dialer).
type proxy struct {
	*faultproxy.Proxy

	refuse, loseAck faultproxy.Marks

	mu     sync.Mutex
	passed map[int16]int  // number of requests, by key
	drop   map[int16]bool // keys of requests to drop
	mute   int16          // after a request with this key, the connection gets no more answers; 0 for none

	breaking bool // dropped requests also break their connection
}

func newProxy(t testing.TB, server string) *proxy {
	t.Helper()
	p := &proxy{passed: make(map[int16]int)}
	p.Proxy = faultproxy.New(t, server, func(l *faultproxy.Link) (toServer, toClient func()) {
		k := &link{Link: l, faults: p, lost: make(map[int32]bool)}
		return k.toServer, k.toClient
	})
	return p
}

// Request keys.
const (
	produceKey = 0
	fetchKey   = 1
	commitKey  = 8
	joinKey    = 11
)

// groupKeys are the keys of all requests between a member and its group: OffsetCommit to OffsetFetch, and
// FindCoordinator to SyncGroup.
var groupKeys = []int16{8, 9, 10, 11, 12, 13, 14}

// dropRequests drops requests with the given keys; without keys, it drops nothing. With breaking, their connections
// break; otherwise these stay open but get no more answers.
func (p *proxy) dropRequests(breaking bool, keys ...int16) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop, p.breaking = make(map[int16]bool), breaking
	for _, key := range keys {
		p.drop[key] = true
	}
}

// muteAfter keeps the connection of the next request with a key open, without any more answers.
func (p *proxy) muteAfter(key int16) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute = key
}

// admit counts a request, and returns whether it passes and whether the connection breaks.
func (l *link) admit(key int16) (passes, breaks bool) {
	p := l.faults
	p.mu.Lock()
	defer p.mu.Unlock()
	p.passed[key]++
	if key == p.mute && key != 0 {
		p.mute = 0
		l.muted.Store(true)
	}
	if p.drop[key] {
		l.muted.Store(true) // the client would take later answers for those to this request
	}
	return !p.drop[key], p.drop[key] && p.breaking
}

// count returns the number of requests with a key.
func (p *proxy) count(key int16) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.passed[key]
}

// link is one connection through the proxy.
type link struct {
	*faultproxy.Link

	faults *proxy
	muted  atomic.Bool

	mu   sync.Mutex
	lost map[int32]bool // correlation IDs of requests whose answer is lost, together with the connection
}

func (l *link) toServer() {
	for {
		frame, err := readFrame(l.Client)
		if err != nil {
			return
		}
		l.Proxy.Pass()
		passes, breaks := l.admit(int16(binary.BigEndian.Uint16(frame[4:])))
		if breaks {
			return
		}
		if !passes {
			continue
		}
		if err := l.tamper(frame[4:]); err != nil {
			fmt.Println("proxy:", err)
			return
		}
		if _, err := l.Server.Write(frame); err != nil {
			return
		}
	}
}

func (l *link) toClient() {
	for {
		frame, err := readFrame(l.Server)
		if err != nil {
			return
		}
		l.Proxy.Pass()
		l.mu.Lock()
		lost := l.lost[int32(binary.BigEndian.Uint32(frame[4:]))]
		l.mu.Unlock()
		if lost {
			return
		}
		if l.muted.Load() {
			continue
		}
		if _, err := l.Client.Write(frame); err != nil {
			return
		}
	}
}

func readFrame(r io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, 4+binary.BigEndian.Uint32(size[:]))
	copy(frame, size[:])
	_, err := io.ReadFull(r, frame[4:])
	return frame, err
}

// tamper applies the requested faults to a request, in place.
func (l *link) tamper(request []byte) error {
	b := kbin.Reader{Src: request}
	key, version, correlation := b.Int16(), b.Int16(), b.Int32()
	var produce kmsg.ProduceRequest
	if key != produce.Key() {
		return nil
	}
	produce.SetVersion(version)
	b.NullableString() // client ID
	if produce.IsFlexible() {
		kmsg.SkipTags(&b)
	}
	if err := produce.ReadFrom(b.Src); err != nil {
		return fmt.Errorf("read produce request: %w", err)
	}
	for _, topic := range produce.Topics {
		for _, partition := range topic.Partitions {
			l.tamperBatch(partition.Records, correlation)
		}
	}
	return nil
}

// Offsets in a record batch.
const (
	crcAt, attributesAt, timestampsAt, countAt = 17, 21, 27, 57
)

// tamperBatch makes the broker reject a batch because of its timestamps while it contains a message to be refused, until
// that message was alone in a batch.
func (l *link) tamperBatch(batch []byte, correlation int32) {
	inBatch := func(id string) bool { return holds(batch, id) }
	if l.faults.loseAck.TakeWhere(inBatch) {
		l.mu.Lock()
		l.lost[correlation] = true
		l.mu.Unlock()
	}
	refused := false
	l.faults.refuse.TakeWhere(func(id string) bool {
		if !holds(batch, id) {
			return false
		}
		refused = true
		return binary.BigEndian.Uint32(batch[countAt:]) == 1
	})
	if refused {
		future := uint64(time.Now().AddDate(100, 0, 0).UnixMilli())
		binary.BigEndian.PutUint64(batch[timestampsAt:], future)
		binary.BigEndian.PutUint64(batch[timestampsAt+8:], future)
		binary.BigEndian.PutUint32(batch[crcAt:], crc32.Checksum(batch[attributesAt:], crc32.MakeTable(crc32.Castagnoli)))
	}
}

// holds reports whether an uncompressed batch contains a message.
func holds(batch []byte, id string) bool {
	const name = "ce_id"
	header := append(kbin.AppendVarint(nil, int32(len(name))), name...)
	header = append(kbin.AppendVarint(header, int32(len(id))), id...)
	return bytes.Contains(batch, header)
}
