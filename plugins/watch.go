package plugins

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// memoryInterval is how often the memory of a plug-in with a limit is looked at.
const memoryInterval = 200 * time.Millisecond

// watch kills a plug-in that doesn't answer any more, or uses too much memory.
func (p *process) watch() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if p.options.Memory > 0 {
		p.watching.Go(func() { p.every(ctx, memoryInterval, p.checkMemory) })
	}
	p.every(ctx, p.options.HealthInterval, p.checkHealth)
}

// every runs a check until the process has ended. An error of a check kills it.
func (p *process) every(ctx context.Context, interval time.Duration, check func() error) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-p.gone():
			return
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := check(); err != nil && p.alive() {
			p.options.Logger.Error("plug-in killed", "plugin", p.options.name(), "pid", p.runner.ID(), "cause", err)
			p.kill(err)
		}
	}
}

func (p *process) checkMemory() error {
	if bytes := used(p.runner.number()); bytes > p.options.Memory {
		return fmt.Errorf("used %d MiB of memory, more than its limit of %d MiB", bytes>>20, p.options.Memory>>20)
	}
	return nil
}

// checkHealth asks the plug-in's health service. An error as the answer is one,
// too: the plug-in says that it is not well.
func (p *process) checkHealth() error {
	answer := make(chan error, 1)
	go func() { answer <- p.connection.Ping() }()
	timer := time.NewTimer(p.options.HealthTimeout)
	defer timer.Stop()
	select {
	case err := <-answer:
		if err != nil {
			return fmt.Errorf("failed a health check: %w", err)
		}
		return nil
	case <-p.gone():
		return nil
	case <-timer.C:
		return errors.New("didn't answer a health check within " + p.options.HealthTimeout.String())
	}
}
