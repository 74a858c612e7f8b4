//! Closures with another error type: the error is returned unchanged, and hides no conflict.

use std::cell::Cell;

use lodestone_pmem::{DomainChoice, PmPtr, PoolOptions};
use lodestone_stm::{Abort, Error, Stm, pm_object};
use lodestone_store::Store;

#[pm_object]
struct Stock {
    lamps: u64,
}

#[derive(Debug, thiserror::Error)]
enum ShopError {
    #[error("sold out")]
    SoldOut,
    #[error("something went wrong, whatever it was")]
    Whatever,
    #[error(transparent)]
    Memory(#[from] Abort),
}

struct Shop {
    _folder: tempfile::TempDir,
    stm: Stm,
    stock: PmPtr<Stock>,
    other: PmPtr<Stock>,
}

fn shop() -> Result<Shop, Error> {
    let folder = tempfile::tempdir().expect("a folder");
    let options = PoolOptions { domain: DomainChoice::Process, ..PoolOptions::default() };
    let stm = Stm::open(&Store::create(folder.path().join("shop.pool"), &options)?)?;
    let (stock, other) = (stm.root_named("stock")?, stm.root_named("other")?);
    Ok(Shop { _folder: folder, stm, stock, other })
}

#[test]
fn an_error_of_the_closure_comes_back_and_nothing_has_happened() -> Result<(), Error> {
    let Shop { stm, stock, _folder, .. } = shop()?;
    let sell = || {
        stm.try_update(|tx| {
            let stock = tx.write(stock)?;
            stock.lamps = stock.lamps.checked_sub(1).ok_or(ShopError::SoldOut)?;
            Ok(())
        })
    };
    assert!(matches!(sell(), Err(ShopError::SoldOut)));
    stm.update(|tx| tx.write(stock).map(|stock| stock.lamps = 1))?;
    assert!(sell().is_ok() && matches!(sell(), Err(ShopError::SoldOut)));
    assert_eq!(stm.read(|tx| Ok(tx.read(stock)?.lamps))?, 0);
    let late = stm.try_update(|tx| {
        tx.write(stock)?.lamps = 9;
        Err::<(), _>(ShopError::Whatever)
    });
    assert!(matches!(late, Err(ShopError::Whatever)));
    let seen = stm.try_read(|tx| if tx.read(stock)?.lamps == 9 { Err(ShopError::SoldOut) } else { Ok(()) });
    assert!(seen.is_ok(), "the change was taken back");
    let seen = stm.try_snapshot(|_| Err::<(), _>(ShopError::SoldOut));
    assert!(matches!(seen, Err(ShopError::SoldOut)));
    Ok(())
}

#[test]
fn errors_of_the_memory_come_back_as_the_closures() -> Result<(), Error> {
    let Shop { stm, stock, _folder, .. } = shop()?;
    let cancelled = stm.try_update(|tx| tx.cancel::<()>("closed on Sundays").map_err(ShopError::from));
    match cancelled {
        Err(ShopError::Memory(abort)) => {
            assert_eq!(abort.to_string(), "transaction cancelled: closed on Sundays");
            assert!(matches!(abort.into_error(), Error::Cancelled { .. }));
        }
        other => panic!("{other:?}"),
    }
    let nested = stm.try_update(|tx| {
        tx.read(stock)?;
        stm.try_update(|_| Ok::<_, ShopError>(()))
    });
    match nested {
        Err(ShopError::Memory(abort)) => assert!(matches!(abort.into_error(), Error::Nested)),
        other => panic!("{other:?}"),
    }
    // Any type that a library error converts to will do.
    let any = stm.try_update(|tx| -> Result<u64, Box<dyn std::error::Error + Send + Sync>> {
        tx.write(stock)?.lamps = "12".parse()?;
        Ok("twelve".parse::<u64>()?)
    });
    assert!(any.expect_err("no number").is::<std::num::ParseIntError>());
    assert_eq!(stm.try_read(|tx| Ok::<_, Error>(tx.read(stock)?.lamps))?, 0);
    Ok(())
}

/// Changes both objects on another thread.
fn change_both(shop: &Shop, lamps: u64) {
    let (stm, stock, other) = (&shop.stm, shop.stock, shop.other);
    let change = || {
        stm.update(|tx| {
            tx.write(stock)?.lamps = lamps;
            tx.write(other)?.lamps = lamps;
            Ok(())
        })
    };
    std::thread::scope(|scope| scope.spawn(change).join().expect("no panic").expect("a commit"));
}

#[test]
fn a_conflict_that_the_closure_answers_with_an_error_of_its_own_begins_the_transaction_again() -> Result<(), Error> {
    let shop = shop()?;
    for swallows in [false, true] {
        let attempts = Cell::new(0);
        let outcome = shop.stm.try_update(|tx| {
            attempts.set(attempts.get() + 1);
            let lamps = tx.read(shop.stock)?.lamps;
            if attempts.get() == 1 {
                change_both(&shop, lamps + 5);
            }
            match tx.read(shop.other) {
                Ok(other) => assert_eq!(other.lamps, lamps, "a state that never was"),
                Err(_) if swallows => return Ok(u64::MAX),
                Err(_) => return Err(ShopError::Whatever),
            }
            tx.write(shop.other)?.lamps += 1;
            tx.write(shop.stock)?.lamps += 1;
            Ok(lamps)
        });
        assert_eq!(attempts.get(), 2);
        assert!(outcome.is_ok_and(|lamps| lamps != u64::MAX), "the answer of the attempt that saw a conflict");
    }
    Ok(())
}

#[test]
fn a_condition_that_is_waited_for_is_waited_for_whatever_the_closure_makes_of_it() -> Result<(), Error> {
    let shop = shop()?;
    let outcome = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            shop.stm.try_update(|tx| {
                let lamps = tx.read(shop.stock)?.lamps;
                tx.retry_when(lamps == 0).map_err(|_| ShopError::SoldOut)?;
                Ok::<_, ShopError>(lamps)
            })
        });
        while shop.stm.stats().waits == 0 && !waiter.is_finished() {
            std::thread::yield_now();
        }
        change_both(&shop, 3);
        waiter.join().expect("no panic")
    });
    assert!(matches!(outcome, Ok(3)), "{outcome:?}");
    Ok(())
}
