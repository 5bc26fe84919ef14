package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"podium/pkg/cli/rest"
	"podium/pkg/cli/why"
	"podium/pkg/client"
)

// whyOptions are the flags of why.
type whyOptions struct {
	*Factory
	selection
	Format string // of -o: json, yaml, or "" for text
	Now    func() time.Time
}

func newWhy(f *Factory, run func(context.Context, *whyOptions) error) *cobra.Command {
	o := &whyOptions{Factory: f, Now: time.Now}
	cmd := &cobra.Command{
		Use:   "why TYPE NAME | TYPE/NAME",
		Short: "Explain what is wrong with an object, and what would fix it",
		Long: `Explain what is wrong with an object, and what would fix it: the most likely
cause first, with the conditions, events and fields that show it. It looks at
what the object owns, what owns it and what it needs, by reads only, and says
what the user may not read.

The exit code is 0 if a cause is found, 2 if nothing is wrong, and 1 after an
error.`,
		Example: `  podium why deployment/web
  podium why pvc data-db-0 -n shop
  podium why node worker-1 -o yaml`,
		ValidArgsFunction: f.completeResources,
		RunE:              on(&o.selection, o, run),
	}
	cmd.Flags().StringVarP(&o.Format, "output", "o", "", "print the report in this format: json or yaml")
	return cmd
}

// nothingWrong is the exit code of why for an object that is well.
const nothingWrong = 2

func runWhy(ctx context.Context, o *whyOptions) error {
	if o.Format != "" && o.Format != "json" && o.Format != "yaml" {
		return fmt.Errorf("-o %q is unknown: use json or yaml", o.Format)
	}
	targets, err := o.resolve(ctx, o.Factory, true)
	if err != nil {
		return err
	}
	if len(targets) != 1 {
		return errors.New("name one object: podium why TYPE/NAME")
	}
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	facts, err := why.Read(ctx, whyReader{c.WithWarnings(nil)}, targets[0].Object, o.Now())
	if err != nil {
		return err
	}
	report := why.Explain(facts)
	if err := o.print(report); err != nil {
		return err
	}
	if len(report.Findings) == 0 {
		return &exitError{code: nothingWrong}
	}
	return nil
}

func (o *whyOptions) print(report why.Report) error {
	if o.Format == "" {
		return report.Write(o.Out)
	}
	text, err := json.MarshalIndent(report, "", "    ")
	if err == nil && o.Format == "yaml" {
		text, err = yaml.JSONToYAML(text)
	}
	if err != nil {
		return err
	}
	if o.Format == "json" {
		text = append(text, '\n')
	}
	_, err = o.Out.Write(text)
	return err
}

// whyReader reads for package why.
type whyReader struct{ *rest.Cluster }

// find returns a kind, and a why.ErrNoResource if the server has none.
func (r whyReader) find(ctx context.Context, resource string) (*rest.Kind, error) {
	k, err := r.Find(ctx, resource)
	if missing := (*rest.ErrNoKind)(nil); errors.As(err, &missing) {
		return nil, &why.ErrNoResource{Resource: resource}
	}
	return k, err
}

// Get reads an object; of a Secret, the metadata only.
func (r whyReader) Get(ctx context.Context, resource, namespace, name string) (*why.Object, error) {
	k, err := r.find(ctx, resource)
	if err != nil {
		return nil, err
	}
	if k.Group == "" && k.Kind == "Secret" {
		o := &why.Object{}
		err := r.GetAs(ctx, k.Path(namespace, name), nil, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", &o.Object)
		return o, err
	}
	return r.Cluster.Get(ctx, k, scope(k, namespace), name)
}

func (r whyReader) List(ctx context.Context, resource, namespace, labels, fields string) ([]*why.Object, error) {
	k, err := r.find(ctx, resource)
	if err != nil {
		return nil, err
	}
	s := selection{Labels: labels, Fields: fields}
	list, err := r.Cluster.List(ctx, k, scope(k, namespace), s.query())
	if err != nil {
		return nil, err
	}
	out := make([]*why.Object, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out, nil
}

// Warnings creates the object in a dry run and returns the server's warnings.
func (r whyReader) Warnings(ctx context.Context, obj *why.Object) ([]string, error) {
	k, err := r.ByGVK(ctx, obj.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	body, err := obj.MarshalJSON()
	if err != nil {
		return nil, err
	}
	_, header, err := r.Do(ctx, client.Request{
		Method: http.MethodPost, Path: k.Path(obj.GetNamespace(), ""), Query: url.Values{"dryRun": {"All"}}, Body: body,
		Header: http.Header{"Content-Type": {"application/json"}},
	})
	return rest.Warnings(header), err
}
