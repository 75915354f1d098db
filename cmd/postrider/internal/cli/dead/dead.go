// Package dead has the command "postrider dead", which lists, shows, repairs, redrives and discards dead letters.
package dead

import (
	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/redrive"
)

// Command returns the command.
func Command(p *program.Program) *cobra.Command { return commands{p}.command() }

// commands has the functions of the commands.
type commands struct{ *program.Program }

func (p commands) command() *cobra.Command {
	return program.Group("dead", "List, inspect, repair, redrive and discard dead letters",
		`A dead letter is the record of a message that a relay or consumer no longer tries: the message, its attempts and their
errors. It stays open until you send the message back (redrive) or discard it, and then on record until a purge
(postrider purge). See docs/operations/dead-letters.md.`,
		p.deadListCommand(), p.deadCountsCommand(), p.deadShowCommand(), p.deadEditCommand(), redrive.DeadCommand(p.Program),
		p.deadDiscardCommand(), p.deadExportCommand(), p.deadImportCommand())
}
