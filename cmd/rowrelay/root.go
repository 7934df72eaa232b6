package main

import "github.com/spf13/cobra"

const rootHelp = `rowrelay moves messages from a table in your own database to wherever they
belong: an HTTP endpoint, a file, a broker. Applications write a message in the
transaction that makes the change it tells of; a relay delivers it, at least
once, and in order per key.

A first look:   rowrelay demo
A first use:    rowrelay migrate up --database sqlite:app.db
                echo '{"topic":"orders","payload":"hello"}' | rowrelay enqueue --database sqlite:app.db
                rowrelay run --database sqlite:app.db --sink stdout: --drain

Databases are URLs: postgres://user:password@host:5432/name or
sqlite:path/to/file.db. $ROWRELAY_DATABASE stands for --database where the flag
isn't given, and keeps a password out of the list of processes.

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.`

func (p program) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:               "rowrelay",
		Short:             "A transactional outbox relay",
		Long:              rootHelp,
		Args:              cobra.ArbitraryArgs,
		RunE:              onlyCommands,
		SilenceUsage:      true,
		SilenceErrors:     true,
		DisableAutoGenTag: true,
	}
	root.SetIn(p.stdin)
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	root.SetFlagErrorFunc(func(command *cobra.Command, err error) error {
		return usagef("%w: see %s --help", err, command.CommandPath())
	})
	root.AddCommand(
		p.migrateCommand(), p.enqueueCommand(), p.runCommand(), p.statusCommand(),
		p.messagesCommand(), p.checkCommand(), p.pluginCommand(), p.demoCommand(), p.versionCommand(),
	)
	return root
}
