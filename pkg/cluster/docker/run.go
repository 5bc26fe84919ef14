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

// apiServerPort is the port of apiservers in their containers.
const apiServerPort = 6443

// runArgs returns the arguments of docker that start a node's container. They
// grant what a machine has one by one, instead of with --privileged, which
// engines without CAP_SYS_RESOURCE refuse as a whole.
func (o *Options) runArgs(n *node, lacksSysResource bool) []string {
	cluster := o.Cluster.Metadata.Name
	args := []string{
		"run", "--detach", "--pull=never",
		"--name", n.name, "--hostname", n.name,
		"--label", labelled(cluster), "--label", v1alpha1.LabelRole + "=" + string(n.Role),
		"--network", v1alpha1.NetworkName(cluster), "--ip", n.ipv4,
		"--stop-signal", "SIGRTMIN+3", // systemd's signal for a shutdown
		"--cap-add", "ALL",
		"--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined",
		"--security-opt", "systempaths=unconfined", "--security-opt", "label=disable",
		"--device-cgroup-rule", "a *:* rwm",
		"--cgroupns", "private", "--userns", "host",
		"--tmpfs", "/tmp", "--tmpfs", "/run:exec", "--tmpfs", "/run/lock",
		// A volume for pods' layers, etcd and logs, which must not be on the
		// container's own layer.
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

// lacksSysResource reports whether a local engine cannot grant
// CAP_SYS_RESOURCE, because it is not in this process's bounding set. Such an
// engine would report that late, when it creates the container.
func lacksSysResource() (bool, error) {
	has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_RESOURCE, 0, 0, 0)
	if err != nil {
		return false, fmt.Errorf("read the capability bounding set: %w", err)
	}
	return has == 0, nil
}

// start starts a node's container. If the engine refuses a capability, it tries
// again without CAP_SYS_RESOURCE.
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
