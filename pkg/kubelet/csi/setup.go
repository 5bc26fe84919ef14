package csi

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	"podium/pkg/attachment"
	"podium/pkg/kubelet/volumes"
)

// The steps of a set-up, as upstream's events name them.
const (
	waitStep    = "MountVolume.WaitForAttach"
	stageStep   = "MountVolume.MountDevice"
	publishStep = "MountVolume.SetUp"
)

// fail returns the error of a step, nil for nil.
func (v *volume) fail(step string, err error) error {
	if err == nil {
		return nil
	}
	return &volumes.StepError{Step: step, Volume: v.Volume, Err: err}
}

// SetUp publishes an inline volume. Those of the drivers of this process are staged, too:
// several pods may use one.
func (d *Driver) SetUp(ctx context.Context, p *volumes.Volume) (volumes.Mount, error) {
	v := d.ofPod(p)
	s, err := d.begin(ctx, v)
	if err != nil {
		return volumes.Mount{}, v.fail(publishStep, err)
	}
	defer s.close()
	if v.persistent() {
		defer d.hold(v)()
		return d.mountShared(ctx, s, v)
	}
	unlock, err := d.locks.Lock(ctx, v.id())
	if err != nil {
		return volumes.Mount{}, v.fail(publishStep, err)
	}
	defer unlock()
	if err := v.write(v.dir); err != nil {
		return volumes.Mount{}, v.fail(publishStep, err)
	}
	return v.mount(d), v.fail(publishStep, d.publish(ctx, s, v, ""))
}

// Refresh publishes an inline volume again if its driver wants that.
func (d *Driver) Refresh(ctx context.Context, p *volumes.Volume) error {
	return d.republish(ctx, d.ofPod(p))
}

// SetUpPersistent attaches, stages and publishes a persistent volume.
func (d *Driver) SetUpPersistent(ctx context.Context, c *volumes.Claimed) (volumes.Mount, error) {
	v := d.persistent(c)
	s, err := d.begin(ctx, v)
	if err != nil {
		return volumes.Mount{}, v.fail(publishStep, err)
	}
	defer s.close()
	if v.attaches() {
		v.Attachment = attachment.Name(v.Driver, v.Handle, d.NodeName)
	}
	defer d.hold(v)()
	if v.Attachment != "" {
		if err := d.attached(ctx, v); err != nil {
			return volumes.Mount{}, v.fail(waitStep, err)
		}
	}
	mount, err := d.mountShared(ctx, s, v)
	if err == nil {
		err = v.fail("MountVolume.NodeExpandVolume", d.expand(ctx, s, c, v))
	}
	return mount, err
}

// hold records that the pod uses a persistent volume. The caller calls release when the
// set-up has ended: until the volume's record is on disk, nothing else releases it.
func (d *Driver) hold(v *volume) (release func()) {
	pod := v.pod.Pod.UID
	if d.uses.hold(v.id(), pod, v.Attachment != "") && v.Attachment != "" {
		d.Node.Check()
	}
	return func() {
		if !exists(v.dir) {
			d.release(&v.record, pod)
		}
	}
}

// mountShared stages and publishes a volume that is attached.
func (d *Driver) mountShared(ctx context.Context, s *service, v *volume) (volumes.Mount, error) {
	unlock, err := d.locks.Lock(ctx, v.id())
	if err != nil {
		return volumes.Mount{}, v.fail(stageStep, err)
	}
	defer unlock()
	if err := v.write(v.dir); err != nil {
		return volumes.Mount{}, v.fail(stageStep, err)
	}
	staged := ""
	if s.stages() {
		staged = d.stagePlace(&v.record).target
		if err := d.stage(ctx, s, v); err != nil {
			return volumes.Mount{}, v.fail(stageStep, err)
		}
	}
	if err := d.publish(ctx, s, v, staged); err != nil {
		return volumes.Mount{}, v.fail(publishStep, err)
	}
	return v.mount(d), nil
}

// RefreshPersistent publishes a volume again if its driver wants that, and expands it if
// the persistent volume has grown.
func (d *Driver) RefreshPersistent(ctx context.Context, c *volumes.Claimed) error {
	v := d.persistent(c)
	if err := d.republish(ctx, v); err != nil || !grown(c) {
		return err
	}
	s, err := d.begin(ctx, v)
	if err != nil {
		return err
	}
	defer s.close()
	return d.expand(ctx, s, c, v)
}

// begin connects to the volume's driver, and asks it and its CSIDriver how they want the
// volume to be mounted.
func (d *Driver) begin(ctx context.Context, v *volume) (*service, error) {
	s, err := d.open(v.Driver)
	if err != nil {
		return nil, err
	}
	if v.object, err = d.object(ctx, v.Driver); err == nil {
		err = v.checkMode()
	}
	if err == nil {
		err = s.learn(ctx)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// mount is what containers get of the volume.
func (v *volume) mount(d *Driver) volumes.Mount {
	return volumes.Mount{HostPath: v.target(d), ReadOnly: v.readOnly, Device: v.device()}
}

func (v *volume) target(d *Driver) string { return d.target(&v.record, v.dir, string(v.pod.Pod.UID)) }

// stage calls NodeStageVolume unless this process knows that the volume is staged. The
// caller holds its lock.
func (d *Driver) stage(ctx context.Context, s *service, v *volume) error {
	at := d.stagePlace(&v.record)
	r := v.record
	r.Node = ""
	if err := r.write(at.dir); err != nil {
		return err
	}
	if complete := d.uses.stage(v.id(), &r); complete {
		return nil
	}
	if err := os.MkdirAll(at.target, 0o750); err != nil {
		return err
	}
	secrets, err := d.secret(ctx, v.secrets.stage, "NodeStageSecretRef")
	if err != nil {
		return err
	}
	_, err = s.NodeStageVolume(ctx, &spec.NodeStageVolumeRequest{
		VolumeId: v.Handle, PublishContext: v.metadata, StagingTargetPath: at.target,
		VolumeCapability: v.capability(s), Secrets: secrets, VolumeContext: v.context,
	})
	if err != nil {
		return fmt.Errorf("NodeStageVolume: %w", err)
	}
	d.uses.staged(v.id())
	return nil
}

// publish calls NodePublishVolume. What an interrupted call has mounted may be incomplete,
// so it calls the driver in any case. staged is where the volume is staged, "" if it is not. The
// caller holds the volume's lock.
func (d *Driver) publish(ctx context.Context, s *service, v *volume, staged string) error {
	target := v.target(d)
	mounted, err := d.mounted(target)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return err
	}
	about, secrets, err := d.publishContext(ctx, v)
	if err != nil {
		return err
	}
	_, err = s.NodePublishVolume(ctx, &spec.NodePublishVolumeRequest{
		VolumeId: v.Handle, PublishContext: v.metadata, StagingTargetPath: staged, TargetPath: target,
		VolumeCapability: v.capability(s), Readonly: v.readOnly, Secrets: secrets, VolumeContext: about,
	})
	if err != nil {
		return fmt.Errorf("NodePublishVolume: %w", err)
	}
	d.measured.add(v, target)
	if v.ownsGroup(s) {
		if err := volumes.Own(target, *v.group(), v.pod.Pod, mounted); err != nil {
			return fmt.Errorf("set the group of the files: %w", err)
		}
	}
	return nil
}

// republish calls NodePublishVolume of a volume that is published, if its driver wants
// that: then tokens are new, or the contents.
func (d *Driver) republish(ctx context.Context, v *volume) error {
	var err error
	if v.object, err = d.object(ctx, v.Driver); err != nil || !v.republishes() {
		return err
	}
	s, err := d.begin(ctx, v)
	if err != nil {
		return err
	}
	defer s.close()
	if v.attaches() {
		a, err := d.API.VolumeAttachment(ctx, attachment.Name(v.Driver, v.Handle, d.NodeName))
		if err != nil {
			return err
		}
		v.metadata = a.Status.AttachmentMetadata
	}
	unlock, err := d.locks.Lock(ctx, v.id())
	if err != nil {
		return err
	}
	defer unlock()
	staged := ""
	if v.persistent() && s.stages() {
		staged = d.stagePlace(&v.record).target
	}
	return v.fail(publishStep, d.publish(ctx, s, v, staged))
}

// mounted reports whether something is mounted on a path.
func (d *Driver) mounted(path string) (bool, error) {
	points, err := d.Mounter.Under(path)
	return slices.Contains(points, path), err
}
