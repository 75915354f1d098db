package saga

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/handlers"
	"github.com/postrider/postrider/store"
)

// Upcast lets a participant take the commands of an older version of a step as those of a newer one: convert turns the older data into the
// newer. It converts commands that arrive, and those in records: an undo gets the newer data also if an older version of the program did
// the step. Several upcasters can lead from version to version. Keep one until no record of its version is left: for KeepRecords, and
// while a saga is running that has it. A reply has no version: change its type only so that it reads older replies, too.
//
// Call Upcast before Relay, Consume and Calls. Errors: postrider.ErrDuplicateDefinition; definitions that are invalid, or not those of
// one step from older to newer.
func Upcast[Tx, From, To, R any](p *Participant[Tx], from StepDefinition[From, R], to StepDefinition[To, R], convert func(From) (To, error)) error {
	if convert == nil {
		return fmt.Errorf("participant %s: upcast %q: there is no function", p.cfg.Name, from.Type())
	}
	if err := handlers.AddUpcast(&p.versions, from.command, to.command, convert); err != nil {
		return fmt.Errorf("participant %s: %w", p.cfg.Name, err)
	}
	return nil
}

// decodeCommand reads a command of any version that can be converted.
func decodeCommand[Tx, C, R any](p *Participant[Tx], s StepDefinition[C, R], m *postrider.Message) (postrider.Typed[C], error) {
	_, m, err := p.versions.Find(m)
	if err != nil {
		return postrider.Typed[C]{}, err
	}
	return s.command.Decode(m)
}

// decodeRecord reads what a record keeps of a step that was done.
func decodeRecord[Tx, C, R any](p *Participant[Tx], s StepDefinition[C, R], r *store.SagaRecord) (c C, reply R, err error) {
	m, err := decodeCommand(p, s, &postrider.Message{
		Type: s.Type(), SchemaVersion: p.versionOf(r, s.command.SchemaVersion()), Payload: r.Command,
	})
	if replyErr := s.reply.Decode(r.Reply, &reply); replyErr != nil {
		err = errors.Join(err, postrider.Dead(postrider.Undecodable, replyErr))
	}
	if err != nil {
		return c, reply, fmt.Errorf("read the record of step %s: %w", r.Step, err)
	}
	return m.Data, reply, nil
}

// versionOf is the schema version of the command of a record; defined is that of the step's definition. A call that has begun has it as its
// reply, too: programs from before records had a version write and read it there, and leave the version as it was. Their other records have
// the oldest version that can be read: these programs had no upcasters, so a version that is newer came after them.
func (p *Participant[Tx]) versionOf(r *store.SagaRecord, defined int) int {
	if r.State == store.SagaStepCalling {
		if version, err := strconv.Atoi(string(r.Reply)); err == nil {
			return version
		}
	}
	return cmp.Or(r.SchemaVersion, p.versions.Oldest(r.CommandType), defined)
}
