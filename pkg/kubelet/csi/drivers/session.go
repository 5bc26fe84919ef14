package drivers

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The exit statuses of iscsiadm that are no failures.
const (
	noDiscovery   = 6 // no record of a discovery
	sessionExists = 15
	noObjects     = 21
)

const (
	iscsiadm        = "iscsiadm"
	discoveryPrefix = "discovery.sendtargets.auth."
	sessionPrefix   = "node.session.auth."
)

// credentials are the keys of a Secret behind a prefix; those of the target are optional.
var credentials = []string{"username", "password", "username_in", "password_in"}

// connect logs in to the disk's target by each of its portals and returns the device. One
// portal that works is enough.
func (s *ISCSI) connect(ctx context.Context, d *disk, secrets map[string]string) (string, error) {
	d.sign(secrets)
	if err := s.record(d); err != nil {
		return "", err
	}
	if d.Initiator != "" {
		if err := s.makeInterface(ctx, d); err != nil {
			return "", fmt.Errorf("make the interface of initiator %s: %w", d.Initiator, err)
		}
	}
	var failed []error
	for _, portal := range d.Portals {
		err := s.join(ctx, d, portal, secrets)
		if errors.Is(err, errCredentials) {
			return "", err
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("portal %s: %w", portal, err))
		}
	}
	if len(failed) == len(d.Portals) {
		return "", errors.Join(failed...)
	}
	device, err := s.host.await(ctx, d)
	if err != nil {
		return "", errors.Join(append(failed, err)...)
	}
	return device, nil
}

// errCredentials refuses a session that another volume's credentials have opened: the
// kernel's sessions are the node's, so the target does not check the volume's own.
var errCredentials = errors.New("a volume with other credentials has a session with the target")

// sign records the hash of the credentials of the session.
func (d *disk) sign(secrets map[string]string) {
	if !d.SessionCHAP {
		return
	}
	h := sha256.New()
	for _, key := range credentials {
		fmt.Fprintf(h, "%q", secrets[sessionPrefix+key])
	}
	d.Credentials = fmt.Sprintf("%x", h.Sum(nil))
}

// join uses the session with the target at a portal that other volumes have opened, or
// opens one.
func (s *ISCSI) join(ctx context.Context, d *disk, portal string, secrets map[string]string) error {
	unlock, err := s.sessions.Lock(ctx, d.session(portal))
	if err != nil {
		return err
	}
	defer unlock()
	others, err := s.sharing(d, portal)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(others, func(o *disk) bool { return o.Credentials != d.Credentials }) {
		return errCredentials
	}
	if _, ok := s.host.byPath(d, portal); ok {
		return nil
	}
	return s.login(ctx, d, portal, secrets)
}

// makeInterface makes the interface of an initiator that has a name of its own.
func (s *ISCSI) makeInterface(ctx context.Context, d *disk) error {
	if _, err := s.host.Run(ctx, iscsiadm, "-m", "iface", "-I", d.Interface, "-o", "show"); err != nil {
		if _, err := s.host.Run(ctx, iscsiadm, "-m", "iface", "-I", d.Interface, "-o", "new"); err != nil {
			return err
		}
	}
	_, err := s.host.Run(ctx, iscsiadm, "-m", "iface", "-I", d.Interface, "-o", "update", "-n", "iface.initiatorname", "-v", d.Initiator)
	return err
}

// login logs in to the disk's target at a portal. It leaves no records behind if that
// fails.
func (s *ISCSI) login(ctx context.Context, d *disk, portal string, secrets map[string]string) error {
	err := s.prepare(ctx, d, portal, secrets)
	if err == nil {
		err = s.open(ctx, d.node(portal))
	}
	if err != nil {
		return errors.Join(err, s.forgetTarget(ctx, d, portal))
	}
	return nil
}

// prepare makes the records of a login. It discovers the targets only for a volume that
// authenticates discovery: a discovery resets the records of all targets of the portal.
func (s *ISCSI) prepare(ctx context.Context, d *disk, portal string, secrets map[string]string) error {
	if d.DiscoverCHAP {
		if err := s.discover(ctx, d.discovery(portal), secrets); err != nil {
			return fmt.Errorf("discover targets: %w", err)
		}
	} else if _, err := s.host.Run(ctx, iscsiadm, append(d.node(portal), "-o", "new")...); err != nil {
		return fmt.Errorf("record the target: %w", err)
	}
	return s.authenticate(ctx, d.SessionCHAP, d.node(portal), sessionPrefix, secrets)
}

func (s *ISCSI) discover(ctx context.Context, record []string, secrets map[string]string) error {
	if _, err := s.host.Run(ctx, iscsiadm, append(record, "-o", "new")...); err != nil {
		return err
	}
	if err := s.authenticate(ctx, true, record, discoveryPrefix, secrets); err != nil {
		return err
	}
	_, err := s.host.Run(ctx, iscsiadm, append(record, "--discover")...)
	return err
}

// open opens the session of a record. If there is one, the disk is new to it.
func (s *ISCSI) open(ctx context.Context, node []string) error {
	// After the node has started, volumes that pods use are staged again.
	if _, err := s.host.Run(ctx, iscsiadm, append(node, "-o", "update", "-n", "node.startup", "-v", "manual")...); err != nil {
		return err
	}
	_, err := s.host.Run(ctx, iscsiadm, append(node, "--login")...)
	if exited(err, sessionExists) {
		_, err = s.host.Run(ctx, iscsiadm, append(node, "--rescan")...)
	}
	if err != nil {
		return fmt.Errorf("log in: %w", err)
	}
	return nil
}

// forgetTarget deletes the records of a disk's target at a portal.
func (s *ISCSI) forgetTarget(ctx context.Context, d *disk, portal string) error {
	err := s.forget(ctx, d.node(portal))
	if d.DiscoverCHAP {
		err = errors.Join(err, s.forget(ctx, d.discovery(portal)))
	}
	return err
}

// discovery returns the arguments of iscsiadm for a portal.
func (d *disk) discovery(portal string) []string {
	return slices.Clip([]string{"-m", "discoverydb", "-t", "sendtargets", "-p", portal, "-I", d.Interface})
}

// node returns the arguments of iscsiadm for the target at a portal.
func (d *disk) node(portal string) []string {
	return slices.Clip([]string{"-m", "node", "-p", portal, "-T", d.IQN, "-I", d.Interface})
}

// authenticate writes the keys of a Secret that begin with prefix to the record that the
// arguments name.
func (s *ISCSI) authenticate(ctx context.Context, chap bool, record []string, prefix string, secrets map[string]string) error {
	if !chap {
		return nil
	}
	if secrets[prefix+"username"] == "" || secrets[prefix+"password"] == "" {
		return fmt.Errorf("the Secret has no %susername or no %spassword", prefix, prefix)
	}
	set := func(key, value string) error {
		if _, err := s.host.Run(ctx, iscsiadm, append(record, "-o", "update", "-n", key, "-v", value)...); err != nil {
			return fmt.Errorf("set %s: %w", key, err)
		}
		return nil
	}
	err := set(prefix+"authmethod", "CHAP")
	for _, key := range credentials {
		if value, ok := secrets[prefix+key]; ok && err == nil {
			err = set(prefix+key, value)
		}
	}
	return err
}

// forget deletes a record, if there is one.
func (s *ISCSI) forget(ctx context.Context, record []string) error {
	_, err := s.host.Run(ctx, iscsiadm, append(record, "-o", "delete")...)
	if exited(err, noObjects, noDiscovery) {
		return nil
	}
	return err
}

// disconnect ends the sessions of a disk that no other disk uses, and forgets the disk.
func (s *ISCSI) disconnect(ctx context.Context, volume string) error {
	d, err := s.read(s.file(volume))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.host.giveUp(ctx, d); err != nil {
		return err
	}
	for _, portal := range d.Portals {
		if err := s.leave(ctx, d, portal); err != nil {
			return fmt.Errorf("portal %s: %w", portal, err)
		}
	}
	if d.Initiator != "" {
		if err := s.removeInterface(ctx, d); err != nil {
			return fmt.Errorf("remove the interface of initiator %s: %w", d.Initiator, err)
		}
	}
	return os.Remove(s.file(volume))
}

// leave ends the session with the target at a portal unless other volumes use it.
func (s *ISCSI) leave(ctx context.Context, d *disk, portal string) error {
	unlock, err := s.sessions.Lock(ctx, d.session(portal))
	if err != nil {
		return err
	}
	defer unlock()
	others, err := s.sharing(d, portal)
	if err != nil || len(others) > 0 {
		return err
	}
	return s.logout(ctx, d, portal)
}

// removeInterface removes the interface of an initiator that no other volume uses.
func (s *ISCSI) removeInterface(ctx context.Context, d *disk) error {
	all, err := s.records()
	if err != nil || slices.ContainsFunc(all, func(o *disk) bool { return o.Volume != d.Volume && o.Interface == d.Interface }) {
		return err
	}
	return s.forget(ctx, []string{"-m", "iface", "-I", d.Interface})
}

// sharing returns the other staged volumes that use the session of a disk at a portal.
func (s *ISCSI) sharing(d *disk, portal string) ([]*disk, error) {
	all, err := s.records()
	return slices.DeleteFunc(all, func(o *disk) bool {
		return o.Volume == d.Volume || !slices.Contains(o.Portals, portal) || o.session(portal) != d.session(portal)
	}), err
}

// session identifies the session of a disk at a portal.
func (d *disk) session(portal string) string { return portal + " " + d.IQN + " " + d.Interface }

func (s *ISCSI) logout(ctx context.Context, d *disk, portal string) error {
	if _, err := s.host.Run(ctx, iscsiadm, append(d.node(portal), "--logout")...); err != nil && !exited(err, noObjects) {
		return fmt.Errorf("log out: %w", err)
	}
	return s.forgetTarget(ctx, d, portal)
}

func (s *ISCSI) file(volume string) string {
	return filepath.Join(s.dir, fmt.Sprintf("%x.json", sha256.Sum256([]byte(volume))))
}

// record writes on disk that a disk is being staged, before it has a session.
func (s *ISCSI) record(d *disk) error {
	if err := os.MkdirAll(s.dir, 0o750); err != nil {
		return err
	}
	data, err := json.Marshal(d)
	if err != nil {
		return err
	}
	file := s.file(d.Volume)
	if err := os.WriteFile(file+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// records reads the disks that are staged.
func (s *ISCSI) records() ([]*disk, error) {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var out []*disk
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		d, err := s.read(filepath.Join(s.dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) { // unstaged meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, err
}

func (s *ISCSI) read(file string) (*disk, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	d, err := parseDisk(data)
	if err != nil {
		return nil, fmt.Errorf("record of a staged iSCSI volume %s: %w", file, err)
	}
	return d, nil
}

func parseDisk(data []byte) (*disk, error) {
	d := &disk{}
	if err := json.Unmarshal(data, d); err != nil {
		return nil, err
	}
	if d.Volume == "" || d.IQN == "" || len(d.Portals) == 0 {
		return nil, errors.New("it names no volume")
	}
	return d, nil
}
