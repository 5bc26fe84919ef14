// Command man generates the manual pages of every command and the shell
// completions of podium.
//
//	go run ./hack/man -out DIR
//
// It creates DIR/man/man1, DIR/bash-completion/completions,
// DIR/zsh/site-functions and DIR/fish/vendor_completions.d, for installation
// below /usr/share.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"podium/pkg/apiserver"
	"podium/pkg/cli"
	"podium/pkg/cloud/manager"
	"podium/pkg/controllers"
	"podium/pkg/kubelet"
	"podium/pkg/proxy"
	"podium/pkg/scheduler"
	"podium/pkg/version"
)

func main() {
	out := flag.String("out", "_share", "folder that is written to")
	date := flag.String("date", "", "date on the pages, YYYY-MM-DD (default: today)")
	flag.Parse()
	if err := run(*out, *date); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

func run(out, date string) error {
	when := time.Now()
	if date != "" {
		var err error
		if when, err = time.Parse(time.DateOnly, date); err != nil {
			return err
		}
	}
	pages := filepath.Join(out, "man", "man1")
	if err := os.MkdirAll(pages, 0o755); err != nil {
		return err
	}
	podium := cli.NewCommand(cli.IO{Out: io.Discard, Err: io.Discard})
	for _, cmd := range []*cobra.Command{
		podium, apiserver.NewCommand(), controllers.NewCommand(), manager.NewCommand(), scheduler.NewCommand(), kubelet.NewCommand(), proxy.NewCommand(),
	} {
		cmd.DisableAutoGenTag = true
		header := &doc.GenManHeader{Section: "1", Date: &when, Source: "Podium " + version.Kubernetes, Manual: "Podium"}
		if err := doc.GenManTree(cmd, header, pages); err != nil {
			return fmt.Errorf("pages of %s: %w", cmd.Name(), err)
		}
	}
	return completions(podium, out)
}

func completions(podium *cobra.Command, out string) error {
	for _, shell := range []struct {
		file  string
		write func(string) error
	}{
		{"bash-completion/completions/podium", func(f string) error { return podium.GenBashCompletionFileV2(f, true) }},
		{"zsh/site-functions/_podium", podium.GenZshCompletionFile},
		{"fish/vendor_completions.d/podium.fish", func(f string) error { return podium.GenFishCompletionFile(f, true) }},
	} {
		file := filepath.Join(out, shell.file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), shell.write(file)); err != nil {
			return err
		}
	}
	return nil
}
