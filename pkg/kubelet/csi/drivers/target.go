package drivers

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// removeInterface removes the interface of an initiator with a name of its own that no
// other volume uses.
func (s *ISCSI) removeInterface(ctx context.Context, d *disk) error {
	if d.Initiator == "" {
		return nil
	}
	all, err := s.records.all()
	if err != nil || slices.ContainsFunc(all, func(o *disk) bool { return o.Volume != d.Volume && o.Interface == d.Interface }) {
		return err
	}
	if err := s.forget(ctx, []string{"-m", "iface", "-I", d.Interface}); err != nil {
		return fmt.Errorf("remove the interface of initiator %s: %w", d.Initiator, err)
	}
	return nil
}
