package machine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"podium/pkg/cluster/drain"
	"podium/pkg/cluster/machine/upgrade"
)

// survey collects the state. It changes nothing.
func (u *upgrading) survey(ctx context.Context) (*upgrade.Survey, error) {
	s := &upgrade.Survey{
		Node: u.Node, Plane: u.plane, Drained: u.Drain, Own: u.localServer(), To: u.to, Now: u.Now(), Room: u.room(), Install: u.installable(ctx),
	}
	var err error
	if s.Nodes, err = u.fleet.nodes(ctx); err != nil {
		return nil, fmt.Errorf("list the nodes: %w", err)
	}
	if s.Servers, err = u.fleet.servers(ctx); err != nil {
		return nil, err
	}
	pods, err := u.fleet.pods(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the pods of this machine: %w", err)
	}
	s.Pods = drain.Sort(u.Node, pods, s.Nodes)
	all, err := u.held()
	if err != nil {
		return nil, err
	}
	for _, h := range all {
		s.Certificates = append(s.Certificates, upgrade.Certificate{Name: h.name, Problem: h.problem, Until: h.until})
	}
	if u.plane {
		s.Members, err = u.fleet.members(ctx)
	}
	upgrade.Sort(s.Nodes)
	return s, err
}

// room returns an error if the new files and copies of the old ones do not fit
// on the disk.
func (u *upgrading) room() error {
	if u.Package == "" {
		return nil
	}
	_, size, err := u.payload()
	if err != nil {
		return err
	}
	for dir, need := range map[string]uint64{upgradeDir: size + leastDisk, u.programs(): 2 * size} {
		free, err := u.host.Free(u.at(dir))
		if err != nil {
			return err
		}
		if free < need {
			return fmt.Errorf("only %d MiB are free for %s: %d are needed", free>>20, dir, need>>20)
		}
	}
	return nil
}

// installable asks apt whether it could install the package without installing
// others.
func (u *upgrading) installable(ctx context.Context) error {
	if !strings.HasSuffix(u.Package, ".deb") {
		return nil
	}
	file, err := filepath.Abs(u.Package)
	if err != nil {
		return err
	}
	out, err := u.host.Run(ctx, "apt-get", "install", "--simulate", "--no-install-recommends", file)
	if err != nil {
		return err
	}
	var missing []string
	for line := range strings.Lines(out) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "Inst" && words[1] != "podium" {
			missing = append(missing, words[1])
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the package needs %s", strings.Join(missing, ", "))
	}
	return nil
}

// refuse returns an error with all findings that are not ignored, and prints
// the others as warnings.
func (u *upgrading) refuse(s *upgrade.Survey) error {
	var errs []error
	for _, f := range s.Judge() {
		if f.Warn || slices.Contains(u.Ignore, f.Check) || slices.Contains(u.Ignore, "all") {
			fmt.Fprintf(u.Out, "   warning: %s\n", f.Text)
			continue
		}
		errs = append(errs, fmt.Errorf("[%s] %s\n    → %s", f.Check, f.Text, f.Do))
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("preflight checks failed; nothing was changed\n%w", errors.Join(errs...))
}
