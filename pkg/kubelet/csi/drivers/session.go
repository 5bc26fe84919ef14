package drivers

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const (
	connectTimeout = 2 * time.Minute  // for all portals and the device
	portalTimeout  = 20 * time.Second // for the login by one of them
	forgetTimeout  = 10 * time.Second // for the clean-up after it
)

// connect logs in to the disk's target by each of its portals and returns the device. One
// portal that works is enough.
func (s *ISCSI) connect(ctx context.Context, d *disk, secrets map[string]string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	failed, err := s.joinAll(ctx, d, secrets)
	if err != nil {
		return "", err
	}
	device, err := s.host.await(ctx, d)
	if err != nil {
		return "", errors.Join(append(failed, err)...)
	}
	return device, nil
}

// joinAll records the disk and joins its sessions. It returns why some portals have
// failed, or an error if none works.
func (s *ISCSI) joinAll(ctx context.Context, d *disk, secrets map[string]string) (failed []error, err error) {
	unlock, err := s.targets.Lock(ctx, d.IQN)
	if err != nil {
		return nil, err
	}
	defer unlock()
	d.sign(secrets)
	if err := s.resume(ctx, d); err != nil {
		return nil, err
	}
	open, err := s.admit(d)
	if err != nil {
		return nil, err
	}
	if d.Initiator != "" {
		if err := s.makeInterface(ctx, d); err != nil {
			return nil, fmt.Errorf("make the interface of initiator %s: %w", d.Initiator, err)
		}
	}
	if err := s.renew(ctx, d); err != nil {
		return nil, err
	}
	for _, portal := range d.Portals {
		if err := s.join(ctx, d, portal, open[portal], secrets); err != nil {
			failed = append(failed, fmt.Errorf("portal %s: %w", portal, err))
		}
	}
	if len(failed) == len(d.Portals) {
		return nil, errors.Join(failed...)
	}
	return failed, nil
}

// resume records a disk. If it already uses sessions, it keeps their interface and their
// portals: volumes with one handle may differ in both.
func (s *ISCSI) resume(ctx context.Context, d *disk) error {
	old, err := s.records.read(d.Volume)
	if err != nil {
		return err
	}
	var joined []string
	if old != nil {
		joined = old.joined()
	}
	switch {
	case len(joined) > 0:
		d.Interface, d.Initiator, d.DiscoverCHAP = old.Interface, old.Initiator, d.DiscoverCHAP || old.DiscoverCHAP
		d.Portals = append(d.Portals, without(old.Portals, d.Portals...)...)
	case old != nil && old.Interface != d.Interface:
		if err := s.removeInterface(ctx, old); err != nil {
			return err
		}
	}
	d.Pending = without(d.Portals, joined...)
	return s.records.write(d)
}

// errCredentials refuses a session that another volume's credentials have opened: the
// kernel's sessions are the node's, so the target does not check the volume's own.
var errCredentials = errors.New("a volume with other credentials has a session with the target")

// admit returns the portals at which there is a session with the disk's target. It refuses
// a volume whose credentials are not those of the volumes that use the session.
func (s *ISCSI) admit(d *disk) (open map[string]bool, err error) {
	open = map[string]bool{}
	for _, portal := range d.Portals {
		others, err := s.sharing(d, portal)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(others, func(o *disk) bool { return o.Credentials != d.Credentials }) {
			return nil, errCredentials
		}
		open[portal] = len(others) > 0 || len(s.host.luns(d, portal)) > 0
	}
	return open, nil
}

// renew deletes the devices of a disk that no volume uses. The login for another LUN may
// have made them long ago.
func (s *ISCSI) renew(ctx context.Context, d *disk) error {
	all, err := s.records.all()
	if err != nil || slices.ContainsFunc(all, func(o *disk) bool { return o.same(d) && len(o.joined()) > 0 }) {
		return err
	}
	return s.host.renew(ctx, d)
}

// same reports whether two volumes are of one disk.
func (d *disk) same(o *disk) bool { return d.IQN == o.IQN && d.LUN == o.LUN }

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

// join uses the session with the target at a portal, if it is open, or opens one.
func (s *ISCSI) join(ctx context.Context, d *disk, portal string, open bool, secrets map[string]string) error {
	// The record says so before there is a session, and after a failure that there is none.
	d.Pending = without(d.Pending, portal)
	if err := s.records.write(d); err != nil {
		return err
	}
	if _, ok := s.host.byPath(d, portal); ok {
		return nil
	}
	if open {
		if err := s.rescan(ctx, d, portal); !exited(err, noObjects) {
			return err
		}
	}
	if err := s.login(ctx, d, portal, secrets); err != nil {
		d.Pending = append(d.Pending, portal)
		return errors.Join(err, s.records.write(d))
	}
	return nil
}

// rescan finds the disks that are new to a session.
func (s *ISCSI) rescan(ctx context.Context, d *disk, portal string) error {
	ctx, cancel := context.WithTimeout(ctx, portalTimeout)
	defer cancel()
	if _, err := s.host.Run(ctx, iscsiadm, append(d.node(portal), "--rescan")...); err != nil {
		return fmt.Errorf("scan for new disks: %w", err)
	}
	return nil
}

// login logs in to the disk's target at a portal. It leaves no records behind if that
// fails.
func (s *ISCSI) login(ctx context.Context, d *disk, portal string, secrets map[string]string) error {
	limited, cancel := context.WithTimeout(ctx, portalTimeout)
	defer cancel()
	err := s.prepare(limited, d, portal, secrets)
	if err == nil {
		err = s.open(limited, d.node(portal))
	}
	if err == nil {
		return nil
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), forgetTimeout)
	defer cancel()
	return errors.Join(err, s.forgetTarget(after, d, portal))
}

// settings are those of a session's record that differ from the node's.
var settings = [][2]string{
	{"node.startup", "manual"},                    // after the node has started, volumes that pods use are staged again
	{"node.session.initial_login_retry_max", "1"}, // iscsid does not go on with a portal after portalTimeout
}

// open opens the session of a record. If there is one, the disk is new to it.
func (s *ISCSI) open(ctx context.Context, node []string) error {
	for _, set := range settings {
		if _, err := s.host.Run(ctx, iscsiadm, append(node, "-o", "update", "-n", set[0], "-v", set[1])...); err != nil {
			return fmt.Errorf("set %s: %w", set[0], err)
		}
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

// disconnect ends the sessions of a disk that no other disk uses, and forgets the disk.
func (s *ISCSI) disconnect(ctx context.Context, volume string) error {
	d, err := s.records.read(volume)
	if d == nil || err != nil {
		return err
	}
	unlock, err := s.targets.Lock(ctx, d.IQN)
	if err != nil {
		return err
	}
	defer unlock()
	own, err := s.own(d)
	if err != nil {
		return err
	}
	if err := s.host.giveUp(ctx, s.host.paths(d, own)); err != nil {
		return err
	}
	for _, portal := range d.Portals {
		if err := s.leave(ctx, d, portal, slices.Contains(own, portal)); err != nil {
			return fmt.Errorf("portal %s: %w", portal, err)
		}
	}
	if err := s.removeInterface(ctx, d); err != nil {
		return err
	}
	return s.records.remove(volume)
}

// own returns the portals at which the volume alone uses the disk.
func (s *ISCSI) own(d *disk) (out []string, err error) {
	for _, portal := range d.joined() {
		others, err := s.sharing(d, portal)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(others, d.same) {
			out = append(out, portal)
		}
	}
	return out, nil
}

// leave ends the session with the target at a portal unless other volumes or the host use
// it. If it stays, the disk's device does not, if it was the volume's own.
func (s *ISCSI) leave(ctx context.Context, d *disk, portal string, own bool) error {
	others, err := s.sharing(d, portal)
	if err != nil {
		return err
	}
	if len(others) == 0 {
		beside, err := s.beside(d, portal)
		if err == nil {
			err = s.host.giveUp(ctx, s.host.luns(d, portal, beside...))
		}
		if err == nil {
			return s.logout(ctx, d, portal)
		}
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
	}
	if !own {
		return nil
	}
	return s.host.remove(ctx, d, portal)
}

// beside returns the LUNs of volumes whose sessions with the same target at the same portal
// are of other interfaces. udev's names do not tell the interface.
func (s *ISCSI) beside(d *disk, portal string) (luns []string, err error) {
	all, err := s.records.all()
	for _, o := range all {
		if o.IQN == d.IQN && o.Interface != d.Interface && slices.Contains(o.joined(), portal) {
			luns = append(luns, o.LUN)
		}
	}
	return luns, err
}

// sharing returns the other staged volumes that use the session of a disk at a portal.
func (s *ISCSI) sharing(d *disk, portal string) ([]*disk, error) {
	all, err := s.records.all()
	return slices.DeleteFunc(all, func(o *disk) bool {
		return o.Volume == d.Volume || !slices.Contains(o.joined(), portal) || o.IQN != d.IQN || o.Interface != d.Interface
	}), err
}

func (s *ISCSI) logout(ctx context.Context, d *disk, portal string) error {
	if _, err := s.host.Run(ctx, iscsiadm, append(d.node(portal), "--logout")...); err != nil && !exited(err, noObjects) {
		return fmt.Errorf("log out: %w", err)
	}
	return s.forgetTarget(ctx, d, portal)
}
