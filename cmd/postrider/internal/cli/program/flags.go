package program

import (
	"errors"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/postrider/postrider/config"
)

// AddFlags adds the flags that every command has.
func (p *Program) AddFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.StringVarP(&p.configFile, "config", "c", p.Env(config.Prefix+"CONFIG"), "configuration `file` (YAML); also POSTRIDER_CONFIG")
	flags.StringVar(&p.StoreFlag, "store", "", "`URL` of the database with the outbox, or the name of a store in the configuration")
	flags.Var(Choice(&p.logLevel), "log-level", "least important `level` to log: debug, info, warn or error (default info)")
	flags.Var(Choice(&p.logFormat), "log-format", "`format` of log lines: text or json (default text)")
	CompleteChoices(root, "log-level", config.Level("").Allowed())
	CompleteChoices(root, "log-format", config.Format("").Allowed())
}

// ByFlag adds the flag that names who decides, by default the operator.
func ByFlag(cmd *cobra.Command, by *string, operator string) {
	cmd.Flags().StringVar(by, "by", operator, "who decides, as a `name` for the record")
	cmd.Flags().Lookup("by").DefValue = "$USER"
}

// BecauseFlag adds the flag for the reason, which stays on record. With --dry-run, nothing is recorded, and no reason is needed.
func BecauseFlag(cmd *cobra.Command, because *string) {
	cmd.Flags().Var((*recordText)(because), "because", "why, as a `text` for the record (required)")
	if err := cmd.MarkFlagRequired("because"); err != nil {
		panic("postrider: " + err.Error())
	}
	cmd.PreRun = func(cmd *cobra.Command, _ []string) {
		if dry := cmd.Flags().Lookup("dry-run"); dry != nil && dry.Value.String() == "true" {
			delete(cmd.Flags().Lookup("because").Annotations, cobra.BashCompOneRequiredFlag)
		}
	}
}

// WhyFlag is BecauseFlag for what needs no reason.
func WhyFlag(cmd *cobra.Command, because *string) {
	cmd.Flags().Var((*recordText)(because), "because", "why, as a `text` for the record")
}

// recordText is the value of a flag that stays on record, and so must not be empty.
type recordText string

func (r *recordText) String() string { return string(*r) }

// Type implements the interface of flags.
func (*recordText) Type() string { return "string" }

// Set implements the interface of flags.
func (r *recordText) Set(text string) error {
	if strings.TrimSpace(text) == "" {
		return errors.New("it is empty, and stays on record: say why")
	}
	*r = recordText(text)
	return nil
}

// choices are values that say what is allowed.
type choices interface {
	~string
	Allowed() []string
}

// choiceFlag is a flag with a fixed set of values.
type choiceFlag[T choices] struct{ value *T }

// Choice returns the value of a flag with a fixed set of values.
func Choice[T choices](value *T) pflag.Value { return &choiceFlag[T]{value} }

func (c *choiceFlag[T]) String() string {
	if c.value == nil {
		return ""
	}
	return string(*c.value)
}

// Type implements the interface of flags.
func (c *choiceFlag[T]) Type() string { return strings.ToLower(reflect.TypeFor[T]().Name()) }

// Set implements the interface of flags.
func (c *choiceFlag[T]) Set(text string) error {
	if slices.Contains((*c.value).Allowed(), text) {
		*c.value = T(text)
		return nil
	}
	return errors.New("allowed: " + strings.Join((*c.value).Allowed(), ", "))
}

// CompleteChoices adds shell completion for a flag's values.
func CompleteChoices(cmd *cobra.Command, flag string, values []string) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return values, cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic("postrider: completion of a flag that does not exist: " + flag)
	}
}
