package docker

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"podium/api/config/v1alpha1"
)

// apiServerPort is where apiservers listen in their containers.
const apiServerPort = 6443

// runArgs are those that start a node's container. It gets what a machine
// has, piece by piece and not by --privileged: engines that lack a capability
// refuse that whole.
func (o *Options) runArgs(n *node, lacksSysResource bool) []string {
	cluster := o.Cluster.Metadata.Name
	args := []string{
		"run", "--detach", "--pull=never",
		"--name", n.name, "--hostname", n.name,
		"--label", labelled(cluster), "--label", v1alpha1.LabelRole + "=" + string(n.Role),
		"--network", v1alpha1.NetworkName(cluster), "--ip", n.ipv4,
		"--stop-signal", "SIGRTMIN+3", // by which systemd shuts down
		"--cap-add", "ALL",
		"--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined",
		"--security-opt", "systempaths=unconfined", "--security-opt", "label=disable",
		"--device-cgroup-rule", "a *:* rwm",
		"--cgroupns", "private", "--userns", "host",
		"--tmpfs", "/tmp", "--tmpfs", "/run:exec", "--tmpfs", "/run/lock",
		// Pods' layers, etcd and logs: not on the engine's own layers.
		"--mount", "type=volume,dst=/var,volume-label=" + labelled(cluster),
	}
	if o.six() {
		args = append(args, "--ip6", n.address)
	}
	if lacksSysResource {
		args = append(args, "--cap-drop", "SYS_RESOURCE")
	}
	if info, err := os.Stat("/lib/modules"); err == nil && info.IsDir() {
		args = append(args, "--mount", "type=bind,src=/lib/modules,dst=/lib/modules,readonly")
	}
	for _, m := range n.ExtraMounts {
		mount := "type=bind,src=" + m.HostPath + ",dst=" + m.ContainerPath
		if m.ReadOnly {
			mount += ",readonly"
		}
		args = append(args, "--mount", mount)
	}
	if n.Zone != "" {
		args = append(args, "--label", v1alpha1.LabelZone+"="+n.Zone)
	}
	if n.controlPlane() && o.socket != "" {
		args = append(args, "--mount", "type=bind,src="+o.socket+",dst="+nodeSocket)
	}
	if n.controlPlane() {
		args = append(args, "--publish", publish(o.Cluster.Networking.APIServerAddress, n.apiPort, apiServerPort, "tcp"))
	}
	for _, m := range n.ExtraPortMappings {
		args = append(args, "--publish", publish(m.ListenAddress, int(m.HostPort), int(m.ContainerPort), strings.ToLower(string(m.Protocol))))
	}
	return append(args, n.image)
}

func publish(address string, host, container int, protocol string) string {
	return fmt.Sprintf("%s:%d/%s", net.JoinHostPort(address, strconv.Itoa(host)), container, protocol)
}

// lacksSysResource says whether the engine cannot give CAP_SYS_RESOURCE. An
// engine on this machine can give no more than this process's bounding set; it
// would fail late, when the container is made.
func lacksSysResource() (bool, error) {
	has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_RESOURCE, 0, 0, 0)
	if err != nil {
		return false, fmt.Errorf("read the capability bounding set: %w", err)
	}
	return has == 0, nil
}

// start runs a node's container. An engine that refuses the capability is
// asked again without.
func (o *Options) start(ctx context.Context, n *node) error {
	lacks, err := lacksSysResource()
	if err != nil {
		return err
	}
	return o.run(ctx, n, lacks)
}

func (o *Options) run(ctx context.Context, n *node, lacks bool) error {
	_, err := o.Engine.output(ctx, o.runArgs(n, lacks)...)
	if err == nil || lacks || !strings.Contains(err.Error(), "caps") {
		return err
	}
	if _, err := o.Engine.output(ctx, "rm", "--force", "--volumes", n.name); err != nil {
		return err
	}
	_, err = o.Engine.output(ctx, o.runArgs(n, true)...)
	return err
}
