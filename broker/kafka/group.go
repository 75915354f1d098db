package kafkabroker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider"
)

// commitWait bounds a commit while a partition waits for it.
const commitWait = 5 * time.Second

// owned returns a partition if this member owns it, otherwise nil. It needs mu.
func (s *Subscription) owned(topic string, number int32) *partition {
	i := slices.IndexFunc(s.partitions, func(p *partition) bool { return p.topic == topic && p.number == number })
	if i < 0 {
		return nil
	}
	return s.partitions[i]
}

// assigned adds partitions to this member.
func (s *Subscription) assigned(_ context.Context, client *kgo.Client, partitions map[string][]int32) {
	<-s.started
	client.ResumeFetchPartitions(partitions) // they may still be paused from an earlier assignment
	s.mu.Lock()
	defer s.mu.Unlock()
	for topic, numbers := range partitions {
		for _, number := range numbers {
			s.partitions = append(s.partitions, &partition{
				sub: s, topic: topic, number: number, name: partitionName(topic, number),
				settled: kgo.EpochOffset{Epoch: -1, Offset: -1}, committed: -1, expected: -1,
			})
		}
	}
}

// revoked releases partitions that go to another member, after their messages are settled or RevokeWait is over.
func (s *Subscription) revoked(ctx context.Context, _ *kgo.Client, partitions map[string][]int32) {
	<-s.started
	leaving := s.among(partitions)
	s.mu.Lock()
	for _, p := range leaving {
		p.leaving = true
	}
	s.mu.Unlock()
	s.drain(leaving)
	s.revoke(leaving, func() {
		ctx, cancel := context.WithTimeout(ctx, commitWait)
		defer cancel()
		if err := s.commit(ctx); err != nil {
			s.cfg.Logger.Warn("Kafka did not take the offsets of partitions that go to another member; messages are redelivered there",
				"group", s.cfg.Group, "error", err)
		}
	})
}

// lost releases partitions that may already belong to other members.
func (s *Subscription) lost(_ context.Context, _ *kgo.Client, partitions map[string][]int32) {
	<-s.started
	s.revoke(s.among(partitions), func() {})
}

// among returns the partitions in named that this member owns.
func (s *Subscription) among(named map[string][]int32) (found []*partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for topic, numbers := range named {
		for _, number := range numbers {
			if p := s.owned(topic, number); p != nil {
				found = append(found, p)
			}
		}
	}
	return found
}

// drain waits until no deliveries of partitions are unsettled, at most for RevokeWait.
func (s *Subscription) drain(leaving []*partition) {
	ctx, cancel := context.WithTimeout(s.life, s.cfg.RevokeWait)
	defer cancel()
	for ctx.Err() == nil {
		s.mu.Lock()
		changed, closed := s.changed, s.closed
		busy := slices.ContainsFunc(leaving, func(p *partition) bool { return p.out > 0 })
		s.mu.Unlock()
		if !busy || closed {
			return
		}
		_ = wait(ctx, changed, time.Time{}) // its error ends the loop
	}
}

// revoke revokes all deliveries of partitions, calls last, and removes the partitions.
func (s *Subscription) revoke(leaving []*partition, last func()) {
	s.mu.Lock()
	for _, p := range leaving {
		p.give()
	}
	s.tell()
	s.mu.Unlock()
	last()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.partitions = slices.DeleteFunc(s.partitions, func(p *partition) bool { return slices.Contains(leaving, p) })
}

// commitLoop commits the offsets of settled messages.
func (s *Subscription) commitLoop() {
	tick := time.NewTicker(s.cfg.CommitEvery)
	defer tick.Stop()
	failing := false
	for {
		select {
		case <-s.life.Done():
			return
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(s.life, commitWait)
		err := s.commit(ctx)
		cancel()
		if err != nil && !failing && s.life.Err() == nil {
			s.cfg.Logger.Warn("Kafka did not accept the offsets of settled messages; retrying; they would be redelivered after a crash",
				"group", s.cfg.Group, "error", err)
		}
		failing = err != nil
	}
}

// watchLoop monitors the membership. Its requests have a timeout that is short enough to suspend before the session
// ends.
func (s *Subscription) watchLoop() {
	tick := time.NewTicker(min(s.cfg.SessionTimeout/20, time.Second))
	defer tick.Stop()
	for {
		select {
		case <-s.life.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		silent := now.Sub(s.health.lastConfirmed())
		if silent >= s.cfg.SessionTimeout*3/4 {
			s.suspend()
		}
		if silent >= s.cfg.SessionTimeout/2 || s.isSuspended() {
			ctx, cancel := context.WithTimeout(s.life, s.cfg.SessionTimeout/8)
			if s.isMember(ctx) {
				s.resume(now)
			}
			cancel()
		}
	}
}

func (s *Subscription) isSuspended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.suspended
}

// isMember asks the group whether this member still belongs to it. The client sends no heartbeats during a join request,
// which takes as long as the slowest member: with a confirmation, work can continue meanwhile; without one, the group
// may have continued without this member long ago.
func (s *Subscription) isMember(ctx context.Context) bool {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group = s.cfg.Group
	req.MemberID, req.Generation = s.client.GroupMetadata()
	if s.cfg.Instance != "" {
		req.InstanceID = &s.cfg.Instance
	}
	s.health.ask(true)
	defer s.health.ask(false)
	resp, err := req.RequestWith(ctx, s.client)
	return err == nil && (resp.ErrorCode == 0 || resp.ErrorCode == kerr.RebalanceInProgress.Code)
}

// suspend stops all work because the group may soon remove the member.
func (s *Subscription) suspend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.suspended || len(s.partitions) == 0 {
		return
	}
	s.suspended = true
	for _, p := range s.partitions {
		p.rewind(0)
	}
	s.tell()
	s.cfg.Logger.Warn("the Kafka group does not answer: work under way is cancelled, and delivered again when the group answers", "group", s.cfg.Group)
}

// resume records that the group confirmed the membership after asked, and continues if the member was suspended.
func (s *Subscription) resume(asked time.Time) {
	s.health.confirm(asked)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.suspended {
		s.suspended = false
		s.tell()
	}
}

// commit commits the offsets of settled messages of all partitions if they are new. Its error is a
// postrider.Unavailable.
func (s *Subscription) commit(ctx context.Context) error {
	s.committing.Lock()
	defer s.committing.Unlock()
	c := s.uncommitted()
	if len(c.partitions) == 0 {
		return nil
	}
	var failed error
	s.client.CommitOffsetsSync(marked(ctx, c.topicIDs), c.offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		failed = err
		if err != nil {
			return
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil && failed == nil {
					failed = fmt.Errorf("partition %d of topic %s: %w", p.Partition, t.Topic, err)
				}
			}
		}
	})
	if failed != nil {
		return postrider.Unavailable(fmt.Errorf("commit offsets of group %s to Kafka: %w", s.cfg.Group, failed))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, offset := range c.partitions {
		p.committed, p.placing = offset, false
	}
	s.tell()
	return nil
}

// commitment is what a commit contains.
type commitment struct {
	offsets    map[string]map[int32]kgo.EpochOffset // by topic and partition
	partitions map[*partition]int64
	topicIDs   map[string]string // topic IDs, by topic
}

func (s *Subscription) uncommitted() commitment {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := commitment{make(map[string]map[int32]kgo.EpochOffset), make(map[*partition]int64), make(map[string]string)}
	for _, p := range s.partitions {
		at := p.settled
		if at.Offset < 0 && p.placing && len(p.entries) > 0 {
			r := p.entries[0].record // the group's position is before the first entry
			at = kgo.EpochOffset{Epoch: r.LeaderEpoch, Offset: r.Offset}
		}
		if at.Offset < 0 || at.Offset == p.committed {
			continue
		}
		if c.offsets[p.topic] == nil {
			c.offsets[p.topic] = make(map[int32]kgo.EpochOffset)
		}
		c.offsets[p.topic][p.number], c.partitions[p], c.topicIDs[p.topic] = at, at.Offset, cmp.Or(p.incarnation, p.topicID)
	}
	return c
}
