package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// refuseUnknown makes every command that has subcommands report unknown ones
// with unknownCommand.
func refuseUnknown(cmd *cobra.Command) {
	if cmd.HasSubCommands() {
		cmd.Args = unknownCommand
	}
	for _, sub := range cmd.Commands() {
		refuseUnknown(sub)
	}
}

// unknownCommand returns nil without args, otherwise an error with suggestions
// for the first of them.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
	text += suggestions(cmd, args[0])
	return fmt.Errorf("%s\n\nSee '%s --help' for all commands", text, cmd.CommandPath())
}

func suggestions(cmd *cobra.Command, word string) string {
	var text string
	for i, s := range cmd.SuggestionsFor(word) {
		if i == 0 {
			text += "\n\nDid you mean this?"
		}
		text += "\n\t" + s
	}
	return text
}

// flagError returns the error for a flag that could not be parsed. If an
// unknown subcommand precedes the flag, the error is about the subcommand:
// cobra parses its flags as those of the parent.
func flagError(cmd *cobra.Command, err error) error {
	if cmd.HasSubCommands() {
		if err := unknownCommand(cmd, cmd.Flags().Args()); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w\nSee '%s --help' for usage", err, cmd.CommandPath())
}
