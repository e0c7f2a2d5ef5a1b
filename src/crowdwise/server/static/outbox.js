// Answers on their way: kept in the browser until the server has them, in their order. Each has an id of its own and is
// sent with it as often as needed, so that it counts once.

// crypto.randomUUID is there over HTTPS only.
export function newId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

const FIRST_WAIT = 1000;
const MOST_WAIT = 30000;

export class Outbox {
  // send(entry) gives a promise; happened(what, entry, result or error) is called with sent, waiting, refused, signed-out.
  constructor(key, send, happened) {
    Object.assign(this, { key, send, happened, memory: [], sending: null, busy: null, wait: FIRST_WAIT, timer: 0 });
  }

  // Storage is read each time: another tab may have sent or added something.
  get entries() {
    try {
      return JSON.parse(localStorage.getItem(this.key) || "[]").concat(this.memory);
    } catch {
      return this.memory;
    }
  }

  get length() {
    return this.entries.length;
  }

  add(entry) {
    try {
      localStorage.setItem(this.key, JSON.stringify([...JSON.parse(localStorage.getItem(this.key) || "[]"), entry]));
    } catch {
      this.memory.push(entry); // no storage, or it is full
    }
  }

  remove(id) {
    this.memory = this.memory.filter((entry) => entry.id !== id);
    try {
      const left = JSON.parse(localStorage.getItem(this.key) || "[]").filter((entry) => entry.id !== id);
      if (left.length) localStorage.setItem(this.key, JSON.stringify(left));
      else localStorage.removeItem(this.key);
    } catch {
      // there is no storage
    }
  }

  // Send what waits; one call at a time does it.
  flush() {
    this.busy ??= this.sendAll().finally(() => {
      this.busy = null;
    });
    return this.busy;
  }

  async sendAll() {
    clearTimeout(this.timer);
    for (let entry; (entry = this.entries[0]); ) {
      this.sending = entry.id;
      try {
        const receipt = await this.send(entry);
        this.remove(entry.id);
        this.wait = FIRST_WAIT;
        this.happened("sent", entry, receipt);
      } catch (error) {
        if (error.signedOut) return this.happened("signed-out", entry, error);
        if (error.passing) {
          this.timer = setTimeout(() => this.flush(), this.wait);
          this.wait = Math.min(2 * this.wait, MOST_WAIT);
          return this.happened("waiting", entry, error);
        }
        this.remove(entry.id);
        this.happened("refused", entry, error);
      } finally {
        this.sending = null;
      }
    }
  }
}
