package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/config/advice"
	"github.com/aepb/aepb-gateway/gateway/directory/admindoc"
)

const (
	checkConfiguration = "configuration"
	checkDisk          = "disk"
	checkMemory        = "memory"
)

// configuration reads the file as far as that can be done here, and has the gateway's
// own program check the rest.
func (v *checkRun) configuration(ctx context.Context) {
	if v.Config == "" || !v.readable(checkConfiguration, v.Config, "--config") {
		return
	}
	defer v.wait("checking %s", v.Config)()
	const remedy = "correct it there; aepb-gateway check-config names all mistakes, and a gateway that runs goes on with the old configuration"
	text, err := os.ReadFile(v.Config)
	var c config.Config
	if err == nil {
		c, err = config.Parse(text)
	}
	dev := v.Token != "" // whose configuration need not be complete
	if err == nil && !dev {
		err = c.Serve()
	}
	if err != nil {
		v.fail(checkConfiguration, remedy, "%s: %v", v.Config, err)
		return
	}
	v.config, v.parsed = c, true
	if dev {
		v.ok(checkConfiguration, "%s is well formed, for aepb-gateway dev", v.Config)
		return
	}
	output, err := "", errors.ErrUnsupported
	if v.CheckConfig != nil {
		ctx, cancel := context.WithTimeout(ctx, v.Patience)
		defer cancel()
		output, err = v.CheckConfig(ctx, v.Config)
	}
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		v.ok(checkConfiguration, "%s is well formed; aepb-gateway check-config %s also reads the files that it names", v.Config, v.Config)
	case err != nil:
		v.fail(checkConfiguration, remedy, "%s: %s", v.Config, cmp.Or(strings.TrimSpace(output), err.Error()))
	default:
		checkedConfig(v, output)
	}
}

// checkedConfig tells what check-config says of a file without mistakes.
func checkedConfig(v *checkRun, output string) {
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		switch warning, warns := strings.CutPrefix(line, "warning: "); {
		case warns:
			found, remedy, _ := strings.Cut(warning, advice.Arrow)
			v.warn(checkConfiguration, remedy, "%s", found)
		case line == "ok":
			v.ok(checkConfiguration, "%s has no mistakes", v.Config)
		case line != "":
			v.ok(checkConfiguration, "%s", line)
		}
	}
}

// restart holds the file against what the gateway has in force, where only a restart changes it.
func restart(ctx context.Context, v *checkRun) {
	if !v.parsed {
		return
	}
	got, err := v.get(ctx, v.Admin+"/api/configuration")
	var running admindoc.Configuration
	if err != nil || got.Status != http.StatusOK || json.Unmarshal(got.Body, &running) != nil {
		v.warn(checkConfiguration, "look at the log of the gateway: it names the keys whose changes wait for a restart", "the gateway does not say which configuration is in force")
		return
	}
	for _, change := range advice.Waiting(running.RestartKeys, advice.RestartKeys(v.config, v.open)) {
		v.warn(checkConfiguration, "restart the gateway when it suits, or take the change back", "%s", change)
	}
}

// here reports whether the gateway runs on this machine, as far as its address says.
func (v *checkRun) here() bool {
	u, err := url.Parse(v.Admin)
	if err != nil {
		return false
	}
	address, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && address.Unmap().IsLoopback()
}

// disks looks at the space where the gateway writes.
func (v *checkRun) disks() {
	if !v.here() {
		return
	}
	var folders []string
	if v.config.State.Path != "" {
		folders = append(folders, filepath.Dir(v.config.State.Path))
	}
	if v.Dir != "" {
		folders = append(folders, v.Dir)
	}
	for i, folder := range folders {
		if full, err := filepath.Abs(folder); err == nil {
			folders[i] = full
		}
	}
	slices.Sort(folders)
	for _, folder := range slices.Compact(folders) {
		free, all, err := space(folder)
		switch {
		case errors.Is(err, errors.ErrUnsupported) || errors.Is(err, os.ErrNotExist) && folder != filepath.Dir(v.config.State.Path):
		case err != nil:
			v.fail(checkDisk, "make the folder of state.path, for the user of the gateway", "%s: %v", folder, err)
		default:
			v.space(folder, free, all)
		}
	}
}

// space emits how much of a disk is free.
func (v *checkRun) space(folder string, free, all uint64) {
	const (
		mib    = 1 << 20
		least  = 64 * mib
		little = 1024 * mib
		remedy = "make space, or move state.path to a larger disk, or lower state.evidence_mib"
	)
	switch {
	case free < least:
		v.fail(checkDisk, remedy, "%d MiB are free in %s", free/mib, folder)
	case free < little || free < all/20:
		v.warn(checkDisk, remedy, "%d MiB are free in %s, of %d", free/mib, folder, all/mib)
	default:
		v.ok(checkDisk, "%d MiB are free in %s", free/mib, folder)
	}
}

// memory holds the bound of the configuration against what this machine, or its container, has.
func (v *checkRun) memory() {
	if !v.parsed || !v.here() {
		return
	}
	const mib = 1 << 20
	bound, limit := v.config.MemoryBound()/mib, container()/mib
	switch {
	case limit == 0:
		v.ok(checkMemory, "the gateway takes at most %d MiB; what this machine has is not known", bound)
	case bound > limit:
		v.warn(checkMemory, "give it more memory, or lower limits.memory_mib to "+strconv.FormatInt(limit*3/4, 10), "the bounds of the configuration add up to %d MiB, and this machine or container has %d MiB", bound, limit)
	default:
		v.ok(checkMemory, "the gateway takes at most %d MiB of %d MiB here", bound, limit)
	}
}

// container is how many bytes of memory this machine or container has; 0: it is not known.
func container() int64 {
	least := int64(0)
	for _, file := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/proc/meminfo"} {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		number, unit := strings.TrimSpace(string(text)), int64(1)
		if _, rest, ok := strings.Cut(number, "MemTotal:"); ok {
			number, _, _ = strings.Cut(strings.TrimSpace(rest), " ")
			unit = 1 << 10
		}
		if n, err := strconv.ParseInt(number, 10, 64); err == nil && n > 0 && (least == 0 || n < least/unit) {
			least = n * unit
		}
	}
	return least
}
