package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// pluginPrefixes are the prefixes of plugins' file names. Of two plugins with the
// same name, the one with the first prefix is run.
var pluginPrefixes = []string{"podium-", "kubectl-"}

// plugin is an executable that runs instead of a command that podium does not have.
type plugin struct {
	path string
	args []string
}

// exec replaces the process by the plugin. It returns only if that is impossible.
func (p *plugin) exec() error {
	err := syscall.Exec(p.path, append([]string{p.path}, p.args...), os.Environ())
	return fmt.Errorf("run plugin %s: %w", p.path, err)
}

// findPlugin returns the plugin for a command line, nil if there is none: the one
// with the longest name that the words before the first flag give. Commands of podium
// come first; create also takes plugins for its subcommands. look finds an executable.
func findPlugin(root *cobra.Command, args []string, look func(string) (string, error)) *plugin {
	var words []string
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") || strings.ContainsRune(arg, filepath.Separator) || arg == "" {
			break
		}
		words = append(words, strings.ReplaceAll(arg, "-", "_"))
	}
	least := 1
	found, rest, _ := root.Find(args[:len(words)])
	switch {
	case found == root:
		if len(words) == 0 || slices.Contains([]string{"help", "completion", cobra.ShellCompRequestCmd, cobra.ShellCompNoDescRequestCmd}, args[0]) {
			return nil // cobra adds these when it executes
		}
	case isCreate(found) && len(rest) > 0:
		least = len(words) - len(rest) + 1
	default:
		return nil
	}
	for n := len(words); n >= least; n-- {
		for _, prefix := range pluginPrefixes {
			if path, err := look(prefix + strings.Join(words[:n], "-")); err == nil {
				return &plugin{path, args[n:]}
			}
		}
	}
	return nil
}

// isCreate reports whether cmd is "podium create", for whose subcommands there may be
// plugins.
func isCreate(cmd *cobra.Command) bool { return cmd.Name() == "create" && cmd.Parent() == cmd.Root() }

// pluginListOptions are the flags of plugin list.
type pluginListOptions struct {
	IO
	Root     *cobra.Command
	Dirs     []string // of PATH
	NameOnly bool
}

func newPlugin(f *Factory) *cobra.Command {
	o := &pluginListOptions{IO: f.IO}
	list := &cobra.Command{
		Use: "list", Short: "List all visible plugin executables on a user's PATH", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Root, o.Dirs = cmd.Root(), filepath.SplitList(os.Getenv("PATH"))
			return runPluginList(o)
		},
	}
	list.Flags().BoolVar(&o.NameOnly, "name-only", false, "display only the binary name of each plugin, rather than its full path")
	cmd := group("plugin", "Provides utilities for interacting with plugins", list)
	cmd.Long = "Plugins are executables on the PATH whose names begin with podium- or kubectl-: podium-tree runs as \"podium tree\".\n" +
		"They get the arguments that follow their name, and the environment."
	return cmd
}

func runPluginList(o *pluginListOptions) error {
	plugins := o.plugins()
	if len(plugins) == 0 {
		return errors.New("unable to find any podium plugins in your PATH")
	}
	fmt.Fprint(o.Out, "The following compatible plugins are available:\n\n")
	warnings := 0
	seen := map[string]string{}
	for _, path := range plugins {
		shown := path
		if o.NameOnly {
			shown = filepath.Base(path)
		}
		fmt.Fprintln(o.Out, shown)
		for _, w := range o.warnings(path, seen) {
			fmt.Fprintf(o.Err, "  - %s\n", w)
			warnings++
		}
	}
	switch warnings {
	case 0:
		return nil
	case 1:
		return errors.New("one plugin warning was found")
	}
	return fmt.Errorf("%d plugin warnings were found", warnings)
}

// plugins returns the files with a plugin's name, in the order of PATH.
func (o *pluginListOptions) plugins() []string {
	var out []string
	for i, dir := range o.Dirs {
		if strings.TrimSpace(dir) == "" || slices.Contains(o.Dirs[:i], dir) {
			continue
		}
		files, err := os.ReadDir(dir)
		if err != nil {
			fmt.Fprintf(o.Err, "Unable to read directory %q from your PATH: %v. Skipping...\n", dir, err)
			continue
		}
		for _, f := range files {
			if !f.IsDir() && pluginName(f.Name()) != "" {
				out = append(out, filepath.Join(dir, f.Name()))
			}
		}
	}
	return out
}

// pluginName returns the name of a file without the prefix of plugins, "" for other
// files.
func pluginName(file string) string {
	for _, prefix := range pluginPrefixes {
		if name, ok := strings.CutPrefix(file, prefix); ok {
			return name
		}
	}
	return ""
}

// warnings returns why a plugin does not run. seen holds the plugins before it, by
// file name.
func (o *pluginListOptions) warnings(path string, seen map[string]string) []string {
	var out []string
	file := filepath.Base(path)
	if info, err := os.Stat(path); err != nil {
		out = append(out, fmt.Sprintf("error: unable to identify %s as an executable file: %v", path, err))
	} else if info.IsDir() || info.Mode()&0o111 == 0 {
		out = append(out, fmt.Sprintf("warning: %s identified as a podium plugin, but it is not executable", path))
	}
	if first, ok := seen[file]; ok {
		out = append(out, fmt.Sprintf("warning: %s is overshadowed by a similarly named plugin: %s", path, first))
	} else {
		seen[file] = path
	}
	words := strings.Split(pluginName(file), "-")
	if found, rest, _ := o.Root.Find(words); found != o.Root && (!isCreate(found) || len(rest) == 0) {
		out = append(out, fmt.Sprintf("warning: %s overwrites existing command: %q", file, found.CommandPath()))
	}
	return out
}

func newOptions(f *Factory) *cobra.Command {
	return &cobra.Command{
		Use: "options", Short: "Print the list of flags inherited by all commands", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(f.Out, "The following options can be passed to any command:\n\n%s", cmd.Root().PersistentFlags().FlagUsages())
			return err
		},
	}
}

// newAlpha returns the command below which kubectl has commands that may change. There
// are none at present.
func newAlpha(f *Factory) *cobra.Command {
	return &cobra.Command{
		Use: "alpha", Short: "Commands for features in alpha", Args: unknownCommand, Hidden: true,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(f.Out, "No alpha commands are available in this version of podium")
			return err
		},
	}
}
