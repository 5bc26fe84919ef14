package vm

import "podium/test/e2e/page"

// slow reports whether the machines are so slow that daemons need longer timeouts.
func (l *lab) slow() bool { return l.accel == emulation }

// patient is the page's commands for slow machines, run after the package is installed.
const patient = `for unit in kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy; do
	mkdir -p /etc/systemd/system/$unit.service.d
	printf '[Service]\nWatchdogSec=10min\n' >/etc/systemd/system/$unit.service.d/patience.conf
done
elect='--leader-elect-lease-duration=60s --leader-elect-renew-deadline=40s --leader-elect-retry-period=5s'
sed -i "s/^ARGS=.*/ARGS=\"$elect\"/" /etc/default/kube-scheduler
sed -i "s/^ARGS=.*/ARGS=\"$elect --node-monitor-grace-period=90s\"/" /etc/default/kube-controller-manager
printf 'heartbeat-interval: 500\nelection-timeout: 5000\n' >>/etc/default/etcd.yaml`

// calm sets longer timeouts on slow machines.
func (l *lab) calm(operators ...*page.Operator) {
	for _, o := range operators {
		if l.slow() {
			o.Run(patient)
		}
	}
}
