package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/version"

	"podium/pkg/cli/output"
	"podium/pkg/cli/rest"
	"podium/pkg/client"
	podium "podium/pkg/version"
)

// apiResourcesOptions are the flags of api-resources.
type apiResourcesOptions struct {
	*Factory
	Format     string
	NoHeaders  bool
	Group      string
	AnyGroup   bool // --api-group was not set
	Namespaced *bool
	Verbs      []string
	Categories []string
	SortBy     string
}

func newAPIResources(f *Factory, run func(context.Context, *apiResourcesOptions) error) *cobra.Command {
	o := &apiResourcesOptions{Factory: f}
	namespaced := false
	cmd := &cobra.Command{
		Use:   "api-resources",
		Short: "Print the supported API resources on the server",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.AnyGroup = !cmd.Flags().Changed("api-group")
			if cmd.Flags().Changed("namespaced") {
				o.Namespaced = &namespaced
			}
			return run(cmd.Context(), o)
		},
	}
	fs := cmd.Flags()
	fs.StringVarP(&o.Format, "output", "o", "", "wide or name")
	fs.BoolVar(&o.NoHeaders, "no-headers", false, "do not print headers")
	fs.StringVar(&o.Group, "api-group", "", "limit to resources in the specified API group")
	fs.BoolVar(&namespaced, "namespaced", true, "return only namespaced resources, or with =false only the others")
	fs.StringSliceVar(&o.Verbs, "verbs", nil, "limit to resources that support the specified verbs")
	fs.StringSliceVar(&o.Categories, "categories", nil, "limit to resources that belong to the specified categories")
	fs.StringVar(&o.SortBy, "sort-by", "", "sort the list of resources: name or kind")
	f.completeFlag(cmd, "sort-by", "name", "kind")
	return cmd
}

func runAPIResources(ctx context.Context, o *apiResourcesOptions) error {
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	kinds, err := c.Kinds(ctx)
	if err != nil {
		return err
	}
	switch o.SortBy {
	case "":
	case "name":
		kinds = slices.SortedStableFunc(slices.Values(kinds), func(a, b *rest.Kind) int { return strings.Compare(a.Resource, b.Resource) })
	case "kind":
		kinds = slices.SortedStableFunc(slices.Values(kinds), func(a, b *rest.Kind) int { return strings.Compare(a.Kind, b.Kind) })
	default:
		return errors.New("--sort-by accepts only name or kind")
	}
	var rows [][]string
	switch o.Format {
	case "", "wide", "name":
	default:
		return fmt.Errorf("-o %q: use wide or name", o.Format)
	}
	if o.Format != "name" && !o.NoHeaders {
		rows = append(rows, []string{"NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"})
		if o.Format == "wide" {
			rows[0] = append(rows[0], "VERBS", "CATEGORIES")
		}
	}
	for _, k := range kinds {
		if !o.wants(k) {
			continue
		}
		if o.Format == "name" {
			rows = append(rows, []string{k.Plural()})
			continue
		}
		row := []string{k.Resource, strings.Join(k.ShortNames, ","), k.GroupVersion().String(), strconv.FormatBool(k.Namespaced), k.Kind}
		if o.Format == "wide" {
			row = append(row, strings.Join(k.Verbs, ","), strings.Join(k.Categories, ","))
		}
		rows = append(rows, row)
	}
	return (&output.Columns{}).Write(o.Out, rows)
}

// wants reports whether the flags select a kind.
func (o *apiResourcesOptions) wants(k *rest.Kind) bool {
	has := func(all []string, wanted []string) bool {
		return !slices.ContainsFunc(wanted, func(w string) bool { return !slices.Contains(all, w) })
	}
	return k.Preferred && (o.AnyGroup || k.Group == o.Group) &&
		(o.Namespaced == nil || *o.Namespaced == k.Namespaced) && has(k.Verbs, o.Verbs) && has(k.Categories, o.Categories)
}

func newAPIVersions(f *Factory) *cobra.Command {
	return &cobra.Command{
		Use: "api-versions", Short: "Print the supported API versions on the server, in the form of \"group/version\"", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runAPIVersions(cmd.Context(), f) },
	}
}

func runAPIVersions(ctx context.Context, f *Factory) error {
	c, err := f.Cluster()
	if err != nil {
		return err
	}
	kinds, err := c.Kinds(ctx)
	if err != nil {
		return err
	}
	var all []string
	for _, k := range kinds {
		all = append(all, k.GroupVersion().String())
	}
	slices.Sort(all)
	for _, v := range slices.Compact(all) {
		fmt.Fprintln(f.Out, v)
	}
	return nil
}

// versionOptions are the flags of version.
type versionOptions struct {
	*Factory
	Client bool
	Format string
	Own    version.Info
}

func newVersion(f *Factory, run func(context.Context, *versionOptions) error) *cobra.Command {
	o := &versionOptions{Factory: f, Own: podium.Info()}
	cmd := &cobra.Command{
		Use: "version", Short: "Print the client and server version information", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), o) },
	}
	cmd.Flags().BoolVar(&o.Client, "client", false, "show the client version only (no server required)")
	cmd.Flags().StringVarP(&o.Format, "output", "o", "", "json or yaml")
	return cmd
}

func runVersion(ctx context.Context, o *versionOptions) error {
	out := map[string]any{"clientVersion": o.Own}
	var serverErr error
	var server version.Info
	if !o.Client {
		if server, serverErr = o.server(ctx); serverErr == nil {
			out["serverVersion"] = server
		}
	}
	if o.Format == "" {
		fmt.Fprintln(o.Out, "Client Version:", o.Own.GitVersion)
		if !o.Client && serverErr == nil {
			fmt.Fprintln(o.Out, "Server Version:", server.GitVersion)
		}
		return serverErr
	}
	data, err := json.Marshal(out)
	if err != nil {
		return err
	}
	obj := &rest.Object{}
	if err := json.Unmarshal(data, &obj.Object); err != nil {
		return err
	}
	p, err := output.New(output.Options{Format: o.Format, ManagedFields: true})
	if err != nil {
		return err
	}
	if err := p.Print(o.Out, obj); err != nil {
		return err
	}
	return serverErr
}

func (o *versionOptions) server(ctx context.Context) (version.Info, error) {
	var info version.Info
	c, err := o.Cluster()
	if err != nil {
		return info, err
	}
	body, _, err := c.Do(ctx, client.Request{Path: "/version"})
	if err != nil {
		return info, err
	}
	return info, json.Unmarshal(body, &info)
}
