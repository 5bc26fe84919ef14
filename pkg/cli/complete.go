package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"podium/pkg/cli/rest"
	"podium/pkg/client/kubeconfig"
)

// completionTimeout is short because the user waits at the prompt.
const completionTimeout = 3 * time.Second

// completeResources completes types, then names of that type, or TYPE/NAME.
func (f *Factory) completeResources(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	c, ctx, done := f.forCompletion(cmd)
	defer done()
	if c == nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if word, _, ok := strings.Cut(toComplete, "/"); ok {
		return prefixed(word+"/", f.names(ctx, c, word)), cobra.ShellCompDirectiveNoFileComp
	}
	if len(args) > 0 && !strings.Contains(args[0], "/") {
		return f.names(ctx, c, args[0]), cobra.ShellCompDirectiveNoFileComp
	}
	kinds, err := c.Kinds(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, k := range kinds {
		if k.Preferred && k.Can("list") {
			out = append(out, k.Plural())
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completeNames completes the names of one type, and TYPE/ for other types.
func (f *Factory) completeNames(word string, types ...string) func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c, ctx, done := f.forCompletion(cmd)
		defer done()
		if c == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		if kind, _, ok := strings.Cut(toComplete, "/"); ok {
			return prefixed(kind+"/", f.names(ctx, c, kind)), cobra.ShellCompDirectiveNoFileComp
		}
		out := f.names(ctx, c, word)
		for _, t := range types {
			out = append(out, t+"/")
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// forCompletion returns the cluster, or nil without one, a context with a
// timeout, and a function that releases it.
func (f *Factory) forCompletion(cmd *cobra.Command) (*rest.Cluster, context.Context, func()) {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	c, err := f.Cluster()
	if err != nil {
		return nil, ctx, cancel
	}
	return c, ctx, cancel
}

// names returns the names of a type's objects in the namespace, nil on any
// error.
func (f *Factory) names(ctx context.Context, c *rest.Cluster, word string) []string {
	k, err := c.Find(ctx, word)
	if err != nil {
		return nil
	}
	namespace, _, err := f.Namespace()
	if err != nil {
		return nil
	}
	list, err := c.List(ctx, k, scope(k, namespace), nil)
	if err != nil {
		return nil
	}
	var out []string
	for i := range list.Items {
		out = append(out, list.Items[i].GetName())
	}
	return out
}

func prefixed(prefix string, names []string) []string {
	for i := range names {
		names[i] = prefix + names[i]
	}
	return names
}

// completeFlag completes a flag with fixed values.
func (f *Factory) completeFlag(cmd *cobra.Command, flag string, values ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return values, cobra.ShellCompDirectiveNoFileComp
	})
}

// completeGlobals completes --namespace and --context.
func (f *Factory) completeGlobals(root *cobra.Command) {
	_ = root.RegisterFlagCompletionFunc("namespace", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		c, ctx, done := f.forCompletion(cmd)
		defer done()
		if c == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return f.names(ctx, c, "namespaces"), cobra.ShellCompDirectiveNoFileComp
	})
	_ = root.RegisterFlagCompletionFunc("context", func(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		return f.completeEntries(kubeconfig.Contexts, nil, prefix)
	})
}

// completeContexts completes one name of a context.
func (f *Factory) completeContexts(_ *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return f.completeEntries(kubeconfig.Contexts, args, prefix)
}

// completeEntries completes one name in a list of the kubeconfig.
func (f *Factory) completeEntries(list kubeconfig.List, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	cfg, err := f.configFiles().Load()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.DeleteFunc(cfg.Names(list), func(name string) bool { return !strings.HasPrefix(name, prefix) }), cobra.ShellCompDirectiveNoFileComp
}
