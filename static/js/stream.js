// The run's stream: one socket that resumes from the last step seen, never shows a step twice and
// never skips one. It knows numbers and health; what a step looks like is the page's business.

const BACKOFF_S = [0.5, 1, 2, 4, 8, 15];
const STALE_MS = 7000; // three heartbeats and a little
const POLL_AFTER = 3; // failed attempts in a row before the page asks by plain HTTP meanwhile
const POLL_MS = 3000;

export class Stream {
  // onItems(items), onText(text), onHealth(state), onStatus(status); poll(after) → {items, lastSeq, status}
  constructor({ url, lastSeq, status, onItems, onText, onHealth, onStatus, poll }) {
    Object.assign(this, { url, lastSeq, status, onItems, onText, onHealth, onStatus, poll });
    this.gaps = 0;
    this.failures = 0;
    this.offset = null; // our clock minus the server's, milliseconds
    this.lag = null;
    this.behind = 0;
    this.connected = false;
    this.closed = false;
    this.tick = setInterval(() => this.watch(), 500);
    this.open();
  }

  open() {
    if (this.closed) return;
    this.retryAt = null;
    this.state = "connecting";
    this.report();
    const socket = new WebSocket(`${this.url}?after=${this.lastSeq}`);
    this.socket = socket;
    socket.onopen = () => { this.heard = Date.now(); };
    socket.onmessage = (message) => { if (socket === this.socket) this.receive(JSON.parse(message.data)); };
    socket.onclose = () => { if (socket === this.socket) this.dropped(); };
  }

  receive(frame) {
    this.heard = Date.now();
    this.failures = 0;
    if (this.state !== "live") this.state = "live";
    if (frame.type === "heartbeat") this.heartbeat(frame);
    else if (frame.type === "events") this.take(frame, true);
    // What is being said after step `after`; once a later step is here, it has been said.
    else if (frame.type === "text" && frame.after >= this.lastSeq) this.onText(String(frame.text));
    this.report();
  }

  heartbeat(frame) {
    const sent = typeof frame.now === "number" ? frame.now * 1000 : Date.parse(frame.now);
    if (!Number.isNaN(sent)) {
      const offset = Date.now() - sent;
      // The smallest difference seen is the one with the least time on the wire in it.
      this.offset = this.offset === null ? offset : Math.min(this.offset, offset);
    }
    if (frame.status) this.changeStatus(frame.status, frame.reason);
    // News that has not come by the next heartbeat was lost: fetch it again from the last good step.
    this.behind = frame.last_seq > this.lastSeq ? this.behind + 1 : 0;
    if (this.behind >= 2) this.gap();
    else this.endIfOver(frame.last_seq);
  }

  // Steps in order: what is known is dropped, a hole means that something was lost.
  take(frame, live) {
    const fresh = [];
    for (const item of frame.items) {
      if (item.seq <= this.lastSeq) continue;
      if (item.seq !== this.lastSeq + 1) { this.deliver(fresh); return this.gap(); }
      this.lastSeq = item.seq;
      fresh.push(item);
    }
    this.deliver(fresh);
    if (live && fresh.length && frame.last_seq <= this.lastSeq && this.offset !== null) {
      const at = Date.parse(fresh[fresh.length - 1].at);
      this.lag = Math.max(0, Date.now() - this.offset - at) / 1000;
    }
    if (frame.status) this.changeStatus(frame.status);
    this.endIfOver(frame.last_seq);
  }

  deliver(items) {
    if (items.length) this.onItems(items);
  }

  gap() {
    this.gaps += 1;
    this.behind = 0;
    const socket = this.socket;
    this.socket = null;
    socket?.close();
    this.open();
  }

  changeStatus(status, reason = this.reason) {
    const changed = status !== this.status || (this.reason !== undefined && reason !== this.reason);
    this.status = status;
    this.reason = reason;
    if (changed) this.onStatus(status);
  }

  get over() {
    return ["finished", "stopped", "failed"].includes(this.status);
  }

  endIfOver(lastSeq) {
    if (!this.over || this.lastSeq < lastSeq) return;
    this.closed = true;
    this.state = "ended";
    clearInterval(this.tick);
    const socket = this.socket;
    this.socket = null;
    socket?.close();
    this.report();
  }

  dropped() {
    this.socket = null;
    if (this.closed) return;
    const pause = BACKOFF_S[Math.min(this.failures, BACKOFF_S.length - 1)] * (0.8 + 0.4 * Math.random());
    this.failures += 1;
    this.retryAt = Date.now() + pause * 1000;
    this.state = "reconnecting";
    this.report();
  }

  watch() {
    if (this.state === "live" && Date.now() - this.heard > STALE_MS) this.state = "stale";
    if (this.state === "stale" && Date.now() - this.heard > 2 * STALE_MS) this.socket?.close();
    if (this.retryAt !== null && Date.now() >= this.retryAt) this.open();
    if (this.failures >= POLL_AFTER && !this.polling && Date.now() - (this.polled ?? 0) > POLL_MS) this.ask();
    this.report();
  }

  async ask() {
    this.polling = true;
    this.polled = Date.now();
    try {
      const answer = await this.poll(this.lastSeq);
      if (!this.closed && answer) this.take({ items: answer.items, last_seq: answer.lastSeq, status: answer.status }, false);
      this.pollWorks = Boolean(answer);
    } catch {
      this.pollWorks = false;
    } finally {
      this.polling = false;
    }
  }

  report() {
    const wait = this.retryAt === null ? 0 : Math.max(0, Math.ceil((this.retryAt - Date.now()) / 1000));
    this.onHealth({ state: this.state, lastSeq: this.lastSeq, gaps: this.gaps, lag: this.lag, wait, polls: this.failures >= POLL_AFTER && this.pollWorks });
  }
}
