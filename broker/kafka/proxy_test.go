package kafkabroker_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// proxy stands between a client and a Kafka of one node, understands their protocol, and makes go wrong what it is told to.
// The client must dial it whatever address the broker tells (kgo.Dialer).
type proxy struct {
	listener net.Listener
	server   string // host:port
	running  sync.WaitGroup

	mu      sync.Mutex
	resumed chan struct{} // closed while nothing is paused
	links   map[*link]bool
	refuse  map[string]bool
	loseAck map[string]bool
	closed  bool
	cut     bool // no connection is let through
	// passed counts requests by their key.
	passed map[int16]int
}

func newProxy(t testing.TB, server string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{
		listener: listener, server: server, resumed: make(chan struct{}), links: make(map[*link]bool),
		refuse: make(map[string]bool), loseAck: make(map[string]bool), passed: make(map[int16]int),
	}
	close(p.resumed)
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := p.dial()
		if err != nil {
			_ = client.Close()
			continue
		}
		l := &link{proxy: p, client: client, server: server, lost: make(map[int32]bool)}
		p.mu.Lock()
		if p.closed || p.cut {
			p.mu.Unlock()
			l.close()
			continue
		}
		p.links[l] = true
		p.mu.Unlock()
		p.running.Go(l.toServer)
		p.running.Go(l.toClient)
	}
}

func (p *proxy) dial() (net.Conn, error) {
	p.mu.Lock()
	cut := p.cut
	p.mu.Unlock()
	if cut {
		return nil, net.ErrClosed
	}
	return net.Dial("tcp", p.server)
}

// sever cuts every connection and lets none through until restore.
func (p *proxy) sever() {
	p.mu.Lock()
	p.cut = true
	p.mu.Unlock()
	p.drop()
}

func (p *proxy) restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
}

func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.resume()
	p.drop()
	p.running.Wait()
}

// drop cuts every connection.
func (p *proxy) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
		delete(p.links, l)
	}
}

func (p *proxy) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resumed = make(chan struct{})
}

func (p *proxy) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.resumed:
	default:
		close(p.resumed)
	}
}

// pass returns when nothing is paused.
func (p *proxy) pass() {
	p.mu.Lock()
	resumed := p.resumed
	p.mu.Unlock()
	<-resumed
}

// mark returns a function that adds message IDs to one of the proxy's sets.
func (p *proxy) mark(set map[string]bool) func(ids ...string) {
	return func(ids ...string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, id := range ids {
			set[id] = true
		}
	}
}

// produceKey is the key of produce requests.
const produceKey = 0

// count is how many requests of a key have come by.
func (p *proxy) count(key int16) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.passed[key]
}

// link is one connection through the proxy.
type link struct {
	proxy          *proxy
	client, server net.Conn

	mu   sync.Mutex
	lost map[int32]bool // correlation IDs of requests whose answer is to be lost, and the connection with it
}

func (l *link) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}

func (l *link) toServer() {
	defer l.close()
	for {
		frame, err := readFrame(l.client)
		if err != nil {
			return
		}
		l.proxy.pass()
		if err := l.tamper(frame[4:]); err != nil {
			fmt.Println("proxy:", err)
			return
		}
		if _, err := l.server.Write(frame); err != nil {
			return
		}
	}
}

func (l *link) toClient() {
	defer l.close()
	for {
		frame, err := readFrame(l.server)
		if err != nil {
			return
		}
		l.proxy.pass()
		l.mu.Lock()
		lost := l.lost[int32(binary.BigEndian.Uint32(frame[4:]))]
		l.mu.Unlock()
		if lost {
			return
		}
		if _, err := l.client.Write(frame); err != nil {
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

// tamper does what has been asked for to a request, in place.
func (l *link) tamper(request []byte) error {
	b := kbin.Reader{Src: request}
	key, version, correlation := b.Int16(), b.Int16(), b.Int32()
	l.proxy.mu.Lock()
	l.proxy.passed[key]++
	l.proxy.mu.Unlock()
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

// Places in a record batch.
const (
	crcAt, attributesAt, timestampsAt, countAt = 17, 21, 27, 57
)

// tamperBatch makes the broker refuse a batch for its timestamps as long as a message that is to be refused stands in it:
// until it has stood alone.
func (l *link) tamperBatch(batch []byte, correlation int32) {
	p := l.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.loseAck {
		if holds(batch, id) {
			delete(p.loseAck, id)
			l.mu.Lock()
			l.lost[correlation] = true
			l.mu.Unlock()
		}
	}
	for id := range p.refuse {
		if !holds(batch, id) {
			continue
		}
		if binary.BigEndian.Uint32(batch[countAt:]) == 1 {
			delete(p.refuse, id)
		}
		future := uint64(time.Now().AddDate(100, 0, 0).UnixMilli())
		binary.BigEndian.PutUint64(batch[timestampsAt:], future)
		binary.BigEndian.PutUint64(batch[timestampsAt+8:], future)
		binary.BigEndian.PutUint32(batch[crcAt:], crc32.Checksum(batch[attributesAt:], crc32.MakeTable(crc32.Castagnoli)))
	}
}

// holds says whether a batch that is not compressed has a message.
func holds(batch []byte, id string) bool {
	const name = "ce_id"
	header := append(kbin.AppendVarint(nil, int32(len(name))), name...)
	header = append(kbin.AppendVarint(header, int32(len(id))), id...)
	return bytes.Contains(batch, header)
}
