package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"sigs.k8s.io/yaml"

	"podium/pkg/cli/rest"
)

// editOptions are the flags of edit. Edit opens a file in the user's editor and
// blocks until it is closed.
type editOptions struct {
	*Factory
	selection
	Edit func(ctx context.Context, path string) error
}

func newEdit(f *Factory, run func(context.Context, *editOptions) error) *cobra.Command {
	o := &editOptions{Factory: f}
	o.Edit = o.editor
	cmd := &cobra.Command{
		Use:               "edit TYPE/NAME",
		Short:             "Edit a resource on the server",
		ValidArgsFunction: f.completeResources,
		RunE:              on(&o.selection, o, run),
	}
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

func runEdit(ctx context.Context, o *editOptions) error {
	c, err := o.Cluster()
	if err != nil {
		return err
	}
	targets, err := o.resolve(ctx, o.Factory, true)
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range targets {
		errs = append(errs, o.one(ctx, c, t))
	}
	return errors.Join(errs...)
}

const editHeader = `# Edit the object below. Lines that begin with '#' are ignored; an empty file
# cancels. When saving fails, the file opens again with the reason.
`

// one edits one object until the server accepts the change or the user cancels.
func (o *editOptions) one(ctx context.Context, c *rest.Cluster, t target) error {
	t.Object.SetManagedFields(nil)
	original, err := yaml.Marshal(t.Object.Object)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp("", "podium-edit-*.yaml")
	if err != nil {
		return err
	}
	path := file.Name()
	file.Close()
	text, problem := original, ""
	for {
		if err := os.WriteFile(path, append([]byte(editHeader+problem+"#\n"), text...), 0o600); err != nil {
			return err
		}
		if err := o.Edit(ctx, path); err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		edited := withoutComments(data)
		if len(bytes.TrimSpace(edited)) == 0 || bytes.Equal(edited, original) {
			fmt.Fprintln(o.Err, "Edit cancelled, no changes made.")
			return os.Remove(path)
		}
		if problem != "" && bytes.Equal(edited, text) {
			return fmt.Errorf("nothing was changed since the error; what you wrote is in %s", path)
		}
		if err := o.save(ctx, c, t, original, edited); err != nil {
			problem = "#\n# " + strings.ReplaceAll(Message(err), "\n", "\n# ") + "\n"
			text = edited
			continue
		}
		fmt.Fprintf(o.Out, "%s edited\n", t)
		return os.Remove(path)
	}
}

// save sends the difference between original and edited as a merge patch, with
// strict field validation.
func (o *editOptions) save(ctx context.Context, c *rest.Cluster, t target, original, edited []byte) error {
	before, err := yaml.YAMLToJSON(original)
	if err != nil {
		return err
	}
	after, err := yaml.YAMLToJSONStrict(edited)
	if err != nil {
		return err
	}
	patch, err := jsonpatch.CreateMergePatch(before, after)
	if err != nil {
		return err
	}
	q := rest.WriteQuery(false, manager)
	q.Set("fieldValidation", "Strict")
	_, err = c.Patch(ctx, t.Kind, t.Namespace, t.Name, types.MergePatchType, patch, q)
	return err
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
