package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"podium/pkg/cli/output"
	"podium/pkg/cli/rest"
	"podium/pkg/scheme"
)

// editOptions are the flags of edit. Edit opens a file in the user's editor and
// blocks until it is closed.
type editOptions struct {
	change
	Subresource string
	ShowPatch   bool
	Windows     bool // line endings
	Edit        func(ctx context.Context, path string) error
}

func newEdit(f *Factory, run func(context.Context, *editOptions) error) *cobra.Command {
	o := &editOptions{change: change{Factory: f, DryRun: "none"}}
	o.Edit = o.editor
	cmd := &cobra.Command{
		Use:   "edit TYPE/NAME | -f FILE",
		Short: "Edit a resource on the server",
		Long: `Edit a resource on the server with $KUBE_EDITOR, $EDITOR or vi. The objects are
those of the arguments, or those that the files name. Several objects are opened
one after the other.`,
		Example: `  podium edit deployment/web
  podium edit deployment/web -o json
  podium edit deployment/web --subresource=status`,
		ValidArgsFunction: f.completeResources,
		RunE:              on(&o.selection, o, run),
	}
	fs := cmd.Flags()
	o.fileFlags(cmd, "the objects to edit")
	fs.StringVarP(&o.Format, "output", "o", "", "edit and print the objects in this format: json or yaml (default: edit in YAML, print the name)")
	fs.BoolVar(&o.ManagedFields, "show-managed-fields", false, "keep managedFields in what is edited and printed")
	fs.StringVar(&o.Subresource, "subresource", "", "subresource to edit: status, scale, resize or ephemeralcontainers")
	fs.BoolVar(&o.ShowPatch, "output-patch", false, "print the patch of each edited object")
	fs.BoolVar(&o.Windows, "windows-line-endings", false, "write the lines of the edited file with Windows line endings")
	o.managerFlag(cmd)
	o.validateFlag(cmd)
	o.saveConfigFlag(cmd)
	return cmd
}

func (o *editOptions) editor(ctx context.Context, path string) error {
	command := os.Getenv("KUBE_EDITOR")
	if command == "" {
		command = os.Getenv("EDITOR")
	}
	if command == "" {
		command = "vi"
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", command+` "$1"`, "sh", path)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = o.In, o.Out, o.IO.Err
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("editor %q: %w", command, err)
	}
	return nil
}

// checkEdit reports flags with values that edit does not have, or that do not go
// together.
func (o *editOptions) checkEdit() error {
	switch o.Format {
	case "", "yaml", "json":
	default:
		return fmt.Errorf("-o %q: objects are edited as json or yaml", o.Format)
	}
	switch o.Subresource {
	case "", "status", "scale", "resize", "ephemeralcontainers":
	default:
		return fmt.Errorf("--subresource=%q: use status, scale, resize or ephemeralcontainers", o.Subresource)
	}
	switch {
	case o.ShowPatch && o.Format != "":
		return errors.New("--output-patch and --output may not be specified together")
	case o.SaveConfig && o.Subresource != "":
		return errors.New("--save-config is for whole objects: it cannot be used with --subresource")
	}
	return o.check()
}

func runEdit(ctx context.Context, o *editOptions) error {
	if err := o.checkEdit(); err != nil {
		return err
	}
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	report, err := newReport(o.Factory, o.options(), o.DryRun)
	if err != nil {
		return err
	}
	targets, err := o.resolve(ctx, o.Factory, false)
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range targets {
		if t.Object, err = c.Get(ctx, t.Kind, t.Namespace, t.Name, o.parts()...); err != nil {
			errs = append(errs, inSource(t.Source, err))
			continue
		}
		errs = append(errs, o.one(ctx, c, t, report))
	}
	return errors.Join(errs...)
}

// parts returns the subresource as the rest of a path.
func (o *editOptions) parts() []string {
	if o.Subresource == "" {
		return nil
	}
	return []string{o.Subresource}
}

const editHeader = `# Edit the object below. Lines that begin with '#' are ignored; an empty file
# cancels. When saving fails, the file opens again with the reason.
`

// one edits one object until the server accepts the change or the user cancels.
func (o *editOptions) one(ctx context.Context, c *rest.Cluster, t target, report *report) error {
	if !o.ManagedFields {
		t.Object.SetManagedFields(nil)
	}
	original, err := o.encode(t.Object)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp("", "podium-edit-*"+o.extension())
	if err != nil {
		return err
	}
	path := file.Name()
	file.Close()
	text, problem := original, ""
	for {
		edited, err := o.open(ctx, path, text, problem)
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(edited)) == 0 || bytes.Equal(edited, original) {
			fmt.Fprintln(o.Err, "Edit cancelled, no changes made.")
			return os.Remove(path)
		}
		if problem != "" && bytes.Equal(edited, text) {
			return fmt.Errorf("nothing was changed since the error; what you wrote is in %s", path)
		}
		patch, after, err := o.save(ctx, c, t, original, edited)
		if err != nil {
			problem, text = Message(err), edited
			continue
		}
		if o.ShowPatch {
			fmt.Fprintf(o.Out, "Patch: %s\n", patch)
		}
		if o.Format == "" {
			after = nil // the name of the object, also if a subresource has another
		}
		return errors.Join(report.tell(t, after, "edited"), os.Remove(path))
	}
}

func (o *editOptions) extension() string {
	if o.Format == "json" {
		return ".json"
	}
	return ".yaml"
}

// encode returns an object as it is edited.
func (o *editOptions) encode(obj *rest.Object) ([]byte, error) {
	if o.Format != "json" {
		return yaml.Marshal(obj.Object)
	}
	var text bytes.Buffer
	printer, err := output.New(output.Options{Format: "json", ManagedFields: true})
	if err != nil {
		return nil, err
	}
	err = printer.Print(&text, obj)
	return text.Bytes(), err
}

// open opens the editor and returns what the user has written. The problem of the last
// attempt stands above the text, or, since JSON has no comments, is printed.
func (o *editOptions) open(ctx context.Context, path string, text []byte, problem string) ([]byte, error) {
	if o.Format == "json" {
		if problem != "" {
			fmt.Fprintln(o.Err, problem)
		}
	} else {
		header := editHeader
		if problem != "" {
			header += "#\n# " + strings.ReplaceAll(problem, "\n", "\n# ") + "\n"
		}
		text = append([]byte(header+"#\n"), text...)
	}
	if o.Windows {
		text = bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return nil, err
	}
	if err := o.Edit(ctx, path); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if o.Windows {
		data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	}
	return withoutComments(data), err
}

// save sends the difference between original and edited as a patch.
func (o *editOptions) save(ctx context.Context, c *rest.Cluster, t target, original, edited []byte) (patch []byte, after *rest.Object, err error) {
	before, err := yaml.YAMLToJSON(original)
	if err != nil {
		return nil, nil, err
	}
	wanted, err := yaml.YAMLToJSONStrict(edited)
	if err != nil {
		return nil, nil, err
	}
	if o.SaveConfig {
		obj := &rest.Object{}
		if err := json.Unmarshal(wanted, obj); err != nil {
			return nil, nil, err
		}
		if err := annotateConfig(obj); err != nil {
			return nil, nil, err
		}
		if wanted, err = obj.MarshalJSON(); err != nil {
			return nil, nil, err
		}
	}
	pt, patch, err := difference(t.Object.GroupVersionKind(), before, wanted)
	if err != nil {
		return nil, nil, err
	}
	after, err = c.Patch(ctx, t.Kind, t.Namespace, t.Name, pt, patch, o.query(), o.parts()...)
	return patch, after, err
}

// difference returns the patch from one version of an object to another. For a
// built-in kind it is a strategic merge patch, which names the changed items of a
// list: others may have changed the rest of it meanwhile.
func difference(gvk schema.GroupVersionKind, from, to []byte) (pt types.PatchType, patch []byte, err error) {
	if kind := scheme.New().ByKind(gvk); kind != nil {
		if patch, err = strategicpatch.CreateTwoWayMergePatch(from, to, kind.New()); err == nil {
			return types.StrategicMergePatchType, patch, nil
		} // a field that the kind does not have: the server refuses it, and names it
	}
	patch, err = jsonpatch.CreateMergePatch(from, to)
	return types.MergePatchType, patch, err
}

// withoutComments removes the comment lines at the top.
func withoutComments(data []byte) []byte {
	for bytes.HasPrefix(data, []byte("#")) {
		_, rest, found := bytes.Cut(data, []byte("\n"))
		if !found {
			return nil
		}
		data = rest
	}
	return data
}
