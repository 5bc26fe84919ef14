package cli

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"runtime/trace"

	"github.com/spf13/pflag"
)

// profiler captures a profile of the command itself.
type profiler struct {
	name, path string
	file       *os.File // nil unless started
}

func (p *profiler) flags(fs *pflag.FlagSet) {
	fs.StringVar(&p.name, "profile", "none", "name of profile to capture: none, cpu, heap, goroutine, threadcreate, block, mutex or trace")
	fs.StringVar(&p.path, "profile-output", "profile.pprof", "name of the file to write the profile to")
}

// start begins to capture the profile.
func (p *profiler) start() error {
	if p.name == "none" {
		return nil
	}
	if p.name != "cpu" && p.name != "trace" && pprof.Lookup(p.name) == nil {
		return fmt.Errorf("unknown profile '%s'", p.name)
	}
	var err error
	if p.file, err = os.Create(p.path); err != nil {
		return err
	}
	switch p.name {
	case "cpu":
		return pprof.StartCPUProfile(p.file)
	case "trace":
		return trace.Start(p.file)
	case "block":
		runtime.SetBlockProfileRate(1)
	case "mutex":
		runtime.SetMutexProfileFraction(1)
	}
	return nil
}

// stop writes the profile. It does nothing if none was started.
func (p *profiler) stop() error {
	if p.file == nil {
		return nil
	}
	var err error
	switch p.name {
	case "cpu":
		pprof.StopCPUProfile()
	case "trace":
		trace.Stop()
	default:
		if p.name == "heap" {
			runtime.GC() // the profile is of the last collection
		}
		err = pprof.Lookup(p.name).WriteTo(p.file, 0)
	}
	return errors.Join(err, p.file.Close())
}
