package volumes

import "sync"

// drivers returns the drivers. The first one that supports a volume handles it.
func drivers(host *Config) []Driver {
	dir := directory{host}
	return append(host.Drivers[:len(host.Drivers):len(host.Drivers)],
		emptyDir{dir},
		hostPath{dir},
		claim{dir, &sync.Mutex{}},
		configMapDriver(dir),
		secretDriver(dir),
		projectedDriver(dir),
		downwardAPIDriver(dir),
	)
}
