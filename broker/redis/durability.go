package redisbroker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/postrider/postrider"
)

// Durability describes, for operators and in one sentence, how durable an accepted message is.
func (p *Publisher) Durability() string {
	switch {
	case p.cfg.Fsync:
		return fmt.Sprintf("an accepted message is on the disk of the server and of %d replicas; a fail-over to another replica loses it", p.cfg.Replicas)
	case p.cfg.Replicas > 0:
		return fmt.Sprintf("an accepted message is in the memory of the server and of %d replicas; a fail-over to another replica, or "+
			"the end of all of them at once, may lose it", p.cfg.Replicas)
	default:
		return "Redis may lose accepted messages: those of the last moments at a fail-over, and up to a second at a power failure with " +
			"appendfsync everysec; set Replicas, or appendfsync to always"
	}
}

// confirmed runs a transaction and waits for replicas and disks. It uses one connection, because WAIT applies to the
// writes of its own connection. Messages that are not confirmed in time count as failed, although the server has them.
func (p *Publisher) confirmed(ctx context.Context, batch []*postrider.Message) []error {
	node, err := p.nodeOf(ctx, batch[0])
	if err != nil {
		return slices.Repeat([]error{err}, len(batch))
	}
	conn := node.Conn()
	defer conn.Close()
	cmds, err := conn.TxPipelined(ctx, func(pipe redis.Pipeliner) error { return p.fill(ctx, pipe, batch) })
	errs := results(ctx, cmds, err, len(batch))
	if slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		if cluster, ok := p.client.(*redis.ClusterClient); ok {
			cluster.ReloadState(ctx) // the slot may have moved
		}
		return errs
	}
	if err := p.awaitReplicas(ctx, conn); err != nil {
		return slices.Repeat([]error{err}, len(batch))
	}
	return errs
}

// nodeOf returns the client of the server that has a message's stream.
func (p *Publisher) nodeOf(ctx context.Context, m *postrider.Message) (*redis.Client, error) {
	switch client := p.client.(type) {
	case *redis.Client:
		return client, nil
	case *redis.ClusterClient:
		node, err := client.MasterForKey(ctx, p.streamOf(m))
		return node, outcome(ctx, err)
	default:
		return nil, fmt.Errorf("a client of type %T cannot wait for replicas; use one of redis.NewUniversalClient", client)
	}
}

func (p *Publisher) awaitReplicas(ctx context.Context, conn *redis.Conn) error {
	limit := p.cfg.PublishTimeout / 2 // the other half is for the network
	args := []any{"wait", p.cfg.Replicas, limit.Milliseconds()}
	if p.cfg.Fsync {
		args = []any{"waitaof", 1, p.cfg.Replicas, limit.Milliseconds()}
	}
	answer, err := conn.Do(ctx, args...).Result()
	if err != nil {
		return outcome(ctx, err)
	}
	got := []any{answer}
	if several, ok := answer.([]any); ok {
		got = several
	}
	replicas, _ := got[len(got)-1].(int64)
	local, _ := got[0].(int64)
	if replicas < int64(p.cfg.Replicas) || p.cfg.Fsync && local < 1 {
		return postrider.Unavailable(fmt.Errorf("%d of %d replicas have confirmed within %s (server's own disk: %v); the server has the messages, "+
			"and they will be sent again. See INFO replication at the server, or lower Replicas", replicas, p.cfg.Replicas, limit, !p.cfg.Fsync || local > 0))
	}
	return nil
}

// warn logs the server settings that may lose messages.
func (p *Publisher) warn(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	warnings, err := lossy(ctx, p.client)
	for _, w := range warnings {
		p.cfg.Logger.Warn("Redis may lose messages: " + w)
	}
	if err != nil {
		p.cfg.Logger.Info("the settings of Redis by which it may lose messages are not known; look at appendonly, appendfsync, maxmemory and "+
			"maxmemory-policy yourself", "error", err)
	}
}

// Risks implements postrider.RiskReader.
func (p *Publisher) Risks(ctx context.Context) ([]string, error) { return lossy(ctx, p.client) }

// lossy returns the ways in which a server may lose messages according to its settings, each with a remedy.
func lossy(ctx context.Context, client redis.UniversalClient) ([]string, error) {
	settings := make(map[string]string)
	var failed error
	for _, pattern := range []string{"append*", "maxmemory*", "save"} {
		got, err := client.ConfigGet(ctx, pattern).Result()
		failed = errors.Join(failed, err)
		maps.Copy(settings, got)
	}
	if failed != nil {
		return nil, failed
	}
	var found []string
	if settings["appendonly"] == "no" {
		loss := "a restart loses everything"
		if settings["save"] != "" {
			loss = "a crash loses everything since the last snapshot (save " + settings["save"] + ")"
		}
		found = append(found, "appendonly is no: "+loss+"; run: redis-cli CONFIG SET appendonly yes, and CONFIG REWRITE")
	} else if policy := settings["appendfsync"]; policy == "no" || policy == "everysec" {
		found = append(found, "appendfsync is "+policy+": a power failure loses the last second, or more; set it to always, or have replicas "+
			"confirm (Replicas)")
	}
	if policy := settings["maxmemory-policy"]; strings.HasPrefix(policy, "allkeys-") {
		found = append(found, "maxmemory-policy is "+policy+": a server whose memory is full deletes whole streams; run: redis-cli CONFIG SET "+
			"maxmemory-policy noeviction, and CONFIG REWRITE")
	}
	return found, nil
}
